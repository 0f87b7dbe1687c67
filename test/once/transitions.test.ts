/** Whatever statement writes tasks, and whatever lies beside them: only transitions of the table of states happen. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Connection } from '../../shared/postgres/pool.ts';
import { run } from '../../shared/postgres/statement.ts';
import { newId } from '../../shared/tasks/ids.ts';
import { TASK_STATES, isTerminal, isTransition } from '../../shared/tasks/state-machine.ts';
import type { TaskState } from '../../shared/tasks/state-machine.ts';
import { openDatabase } from '../support/database.ts';
import type { TestDatabase } from '../support/database.ts';
import { findStatementFiles } from '../support/product-statements.ts';
import type { AnyStatement } from '../support/product-statements.ts';
import { parametersOf } from '../support/statement-source.ts';
import type { WrittenParameter } from '../support/statement-source.ts';

interface Writer {
  readonly statement: AnyStatement;
  readonly parameters: readonly WrittenParameter[];
}

const writers: Writer[] = [];
for (const { source, statements } of await findStatementFiles()) {
  for (const statement of statements) {
    if (!/\b(update|merge\s+into)\s+(only\s+)?tasks\b/.test(statement.text)) continue;
    writers.push({ statement, parameters: parametersOf(source, statement.name) ?? [] });
  }
}
/** The only ones that may lead out of a terminal state. */
const REPLAYS = ['replay_task', 'send_replay_items'];
/** The only ones that may change an ended task otherwise: what it carries goes, its state stays. */
const ERASURES = ['erase_tasks'];
/** The replay that names every letter. */
const REPLAY_ID = newId() as string;

/** What stands beside a task of each state. */
interface World {
  readonly hasLease: boolean;
  readonly hasDeadline: boolean;
  readonly ranAlone: boolean;
  readonly isCancelAsked: boolean;
}

const BOTH = [true, false];
const worlds: readonly World[] = BOTH.flatMap((hasLease) =>
  BOTH.flatMap((hasDeadline) =>
    BOTH.flatMap((ranAlone) =>
      BOTH.map((isCancelAsked) => ({ hasLease, hasDeadline, ranAlone, isCancelAsked }) as const),
    ),
  ),
);

interface Task {
  readonly id: string;
  readonly claimId: string;
  readonly letterId: string;
  readonly state: TaskState;
}

let opened: TestDatabase;
beforeAll(async () => {
  opened = await openDatabase();
});
afterAll(async () => await opened[Symbol.asyncDispose]());

test('there are statements to look at', () => {
  expect(writers.map(({ statement }) => statement.name)).toEqual(expect.arrayContaining(REPLAYS));
  expect(writers.length).toBeGreaterThan(10);
});

test.each(writers.map((writer) => [writer.statement.name, writer] as const))(
  'invariant 6: %s moves tasks only along the table of states, and none out of a terminal one but by replay',
  async (name, writer) => {
    const faults = new Set<string>();
    let changed = 0;
    for (const world of worlds) {
      for (const wanted of wantedStatesOf(writer)) {
        for (const { before, after, isSame } of await tryOut(writer, world, wanted)) {
          if (!isSame) changed += 1;
          const isAllowed = isTerminal(before)
            ? isSame ||
              (REPLAYS.includes(name) && isTransition(before, after)) ||
              (ERASURES.includes(name) && before === after)
            : before === after || isTransition(before, after);
          if (!isAllowed) faults.add(`${before} to ${after}, in ${JSON.stringify({ ...world, wanted })}`);
        }
      }
    }
    expect([...faults]).toEqual([]);
    // Else its parameters were not understood: say in MEANINGS what stands for them.
    expect(changed).toBeGreaterThan(0);
  },
  60_000,
);

/** The states that a settle may ask for; what an edit may change; of the others, one run. */
function wantedStatesOf({ parameters }: Writer): readonly string[] {
  const takes = (name: string): boolean => parameters.some((parameter) => parameter.name === name);
  if (takes('states')) return ['retrying', 'dead', 'scheduled', 'pending', 'cancelled'];
  return takes('setsRunAt') ? ['priority', 'run at once', 'run later', 'deadline', 'input'] : [''];
}

interface Change {
  readonly before: TaskState;
  readonly after: TaskState;
  readonly isSame: boolean;
}

/** Sends one statement to a world with a task of each state, and says what became of each. */
async function tryOut({ statement, parameters }: Writer, world: World, wanted: string): Promise<readonly Change[]> {
  const connection = await opened.database.checkOut();
  try {
    await connection.query({ text: 'begin' });
    const worker = randomUUID();
    const tasks = TASK_STATES.map((state): Task => ({
      id: newId(),
      claimId: randomUUID(),
      letterId: randomUUID(),
      state,
    }));
    await build(connection, world, worker, tasks);
    await holdBack(connection, HOLDS.get(statement.name), tasks);
    const before = await read(connection);
    // A statement that takes one task is sent for each.
    const isForOne = parameters.some(({ name }) => ['taskId', 'id', 'letterId'].includes(name));
    for (const some of isForOne ? tasks.map((task) => [task]) : [tasks]) {
      const values = parameters.map((parameter) => valueOf(parameter, { tasks: some, worker, wanted }));
      await run(connection, statement, ...values);
    }
    const after = await read(connection);
    return tasks.map(({ id, state }) => {
      const now = after.get(id);
      // What maintenance takes away in whole changes no state.
      return {
        before: state,
        after: now?.state ?? state,
        isSame: now === undefined || now.row === before.get(id)?.row,
      };
    });
  } finally {
    await connection.query({ text: 'rollback' });
    connection.release(false);
  }
}

async function build(connection: Connection, world: World, worker: string, tasks: readonly Task[]): Promise<void> {
  const past = `clock_timestamp() - interval '1 min'`;
  const list = (of: (task: Task) => string): string => `{${tasks.map((task) => of(task)).join(',')}}`;
  await connection.query({
    text: `
      with given as (
        select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::task_state[]) as g (id, claim_id, letter_id, state)
      ), made as (
        insert into tasks (id, state, claim_id, worker, attempt, generation, max_attempts, priority, type, queue, input,
                           invited_at, started_at, run_at, deadline, finished_at, lost_alone, lost_attempts)
        select id, state, claim_id, $5::uuid, 1, 1, 3, 4, 'test.noop', 'default', '{}', ${past}, ${past}, ${past},
               ${world.hasDeadline ? past : 'null'},
               case when state in ('succeeded', 'dead', 'cancelled', 'expired') then ${past} end, 2, 2
          from given
      ), waits as (
        insert into due (task_id, at) select id, ${past} from given
      ), held as (
        insert into claims (id, worker, claimed_at, task_ids, alone)
        select claim_id, $5::uuid, ${past}, array[id], ${world.ranAlone ? 'id' : 'null'} from given
      ), letters as (
        insert into dead_letters (id, kind, task_id, reason) select letter_id, 'task', id, 'test' from given
         where state in ('succeeded', 'dead', 'cancelled', 'expired')
      ), replay as (
        insert into replays (id, state, created_by, role, selection, items, waves, wave, wave_end)
        values ($6::uuid, 'running', 'test', 'operator', '{}', 9, '"none"', 1, 9)
      ), items as (
        insert into replay_items (replay_id, n, letter_id)
        select $6::uuid, row_number() over (), letter_id from given
      ), asked as (
        insert into cancel_requests (task_id, requested_by) select id, 'test' from given where ${world.isCancelAsked}
      )
      insert into leases (worker, host, pid, code_version, queues, task_types, slots)
      select $5::uuid, 'test', 1, 'test', '{}', '{}', 1 where ${world.hasLease}`,
    values: [
      list(({ id }) => id),
      list(({ claimId }) => claimId),
      list(({ letterId }) => letterId),
      list(({ state }) => state),
      worker,
      REPLAY_ID,
    ],
  });
}

/** What a statement that invites what was held back for a reason finds. */
const HOLDS: ReadonlyMap<string, string> = new Map([
  ['release_places', 'concurrency'],
  ['release_starts', 'rate'],
  ['release_paused', 'paused'],
  ['release_draining', 'draining'],
  ['release_turns', 'turn'],
  ['give_invitation', 'nothing'],
]);
const HELD_SCOPE = 'held';

async function holdBack(connection: Connection, reason: string | undefined, tasks: readonly Task[]): Promise<void> {
  if (reason === undefined) return;
  await connection.query({
    text: `with made as (insert into queues (name, fair_by) values ($1, 'input.k'))
           insert into fair_turns (queue) values ($1)`,
    values: [HELD_SCOPE],
  });
  const values = [`{${tasks.map(({ id }) => id).join(',')}}`];
  const text = `update tasks set invited_at = null where id = any($1::uuid[]) and state = 'pending'`;
  await connection.query({ text, values });
  if (reason === 'nothing') return;
  await connection.query({
    text: `insert into held_back (task_id, reason, scope, priority) select id, $2, $3, 4 from unnest($1::uuid[]) id`,
    values: [...values, reason, HELD_SCOPE],
  });
}

async function read(
  connection: Connection,
): Promise<ReadonlyMap<string, { readonly state: TaskState; readonly row: string }>> {
  const { rows } = await connection.query({ text: 'select id, state, t::text as row from tasks t' });
  return new Map((rows as { id: string; state: TaskState; row: string }[]).map(({ id, ...rest }) => [id, rest]));
}

type Meaning = (world: {
  readonly tasks: readonly Task[];
  readonly worker: string;
  readonly wanted: string;
}) => unknown;

/** What stands for a parameter of this name; for any other, something of its type. */
const MEANINGS: Readonly<Record<string, Meaning>> = {
  id: ({ tasks: [task] }) => task?.id,
  ids: ({ tasks }) => tasks.map(({ id }) => id),
  taskId: ({ tasks: [task] }) => task?.id,
  taskIds: ({ tasks }) => tasks.map(({ id }) => id),
  claimIds: ({ tasks }) => tasks.map(({ claimId }) => claimId),
  finishedClaims: () => [],
  letterId: ({ tasks: [task] }) => task?.letterId,
  ofReplay: () => REPLAY_ID,
  numbers: ({ tasks }) => tasks.map((_task, index) => index + 1),
  worker: ({ worker }) => worker,
  states: ({ tasks, wanted }) => tasks.map(() => wanted),
  outcomes: ({ tasks }) => tasks.map(() => 'failed'),
  newPriority: ({ wanted }) => (wanted === 'priority' ? 9 : null),
  setsRunAt: ({ wanted }) => wanted.startsWith('run'),
  newRunAt: ({ wanted }) => (wanted === 'run later' ? new Date('2099-01-01T00:00:00Z') : null),
  setsDeadline: ({ wanted }) => wanted === 'deadline',
  newDeadline: () => new Date('2099-01-01T00:00:00Z'),
  newInput: ({ wanted }) => (wanted === 'input' ? Buffer.from('{"a":1}') : null),
  limit: () => 1_000,
  scope: () => HELD_SCOPE,
  fairQueue: () => HELD_SCOPE,
  key: () => '',
  detail: () => '{}',
  properties: ({ tasks }) => tasks.map(() => '{}'),
  headers: ({ tasks }) => tasks.map(() => '{}'),
};

function valueOf({ name, type }: WrittenParameter, world: Parameters<Meaning>[0]): unknown {
  const meaning = Object.hasOwn(MEANINGS, name) ? MEANINGS[name] : undefined;
  if (meaning !== undefined) return meaning(world);
  return type.startsWith('readonly') ? world.tasks.map(() => anyOf(type)) : anyOf(type);
}

function anyOf(type: string): unknown {
  if (type.includes('null')) return null;
  if (type.includes('number')) return 1;
  if (type.includes('Buffer')) return Buffer.from(randomUUID());
  if (type.includes('Date')) return new Date(0);
  if (type.includes('boolean')) return true;
  return randomUUID();
}
