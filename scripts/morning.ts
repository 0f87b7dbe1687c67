/**
 * The morning after: 2 000 dead letters, which an operator finds to be three faults and twelve poison pictures, mends what can
 * be mended, replays that in waves, discards the rest, and can prove what was done.
 */
import { copyFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { NIGHT, createNight } from '../examples/night.ts';
import { OUTPUT_DIRECTORY, dataDirectory } from '../examples/tasks/files.ts';
import type { Receiver } from '../examples/workload.ts';
import { systemClock } from '../shared/time/clock.ts';
import { call } from './call.ts';
import { ProgressLine } from './progress-line.ts';

/** Where it takes place. */
export interface MorningSite {
  readonly producerUrl: string;
  readonly deadLettersUrl: string;
  readonly receiver: Receiver;
  /** This run's own folder below the samples' directory. */
  readonly folder: string;
  readonly say: (line?: string) => void;
}

interface Group {
  readonly id: string;
  readonly type: string | null;
  readonly error: { readonly type: string | null; readonly message: string | null };
  readonly openLetters: number;
}

interface Replay {
  readonly id: string;
  readonly state: string;
  readonly stateReason: string | null;
  readonly items: number;
  readonly wave: number;
  readonly counts: Readonly<Record<string, number>>;
}

/** Tasks that it adds to the books. */
export const MORNING_TASKS = NIGHT.orders + NIGHT.misspelt + NIGHT.missing + NIGHT.poison;

const BATCH = 1_000;
const WITHIN_MS = 180_000;

/** Plays the scene; true where everything came out as it should. */
export async function playMorning(site: MorningSite): Promise<boolean> {
  const { folder, receiver, say } = site;
  const missing = `inbox/${folder}/night.csv`;
  const poison = `inbox/${folder}/night.png`;
  await writeFile(join(OUTPUT_DIRECTORY, poison), 'this is no picture');
  say();
  say(`a bad night: ${MORNING_TASKS} tasks more, all of which die`);
  await submitAll(site, createNight({ folder, poison, missing, receiverUrl: receiver.url }));
  const groups = await untilGrouped(site);
  say('in the morning, `warren dead groups` says what they died of:');
  for (const group of groups)
    say(`  ${String(group.openLetters).padStart(5)}  ${String(group.type).padEnd(16)} ${whatOf(group)}`);
  const find = (open: number): Group => {
    const found = groups.find(({ openLetters }) => openLetters === open);
    if (found === undefined) throw new Error(`there is no failure group of ${open} letters`);
    return found;
  };

  say();
  say('1. the receiver knows no /orders: it is opened, and the letters are replayed in waves of 1, 5, 25, …');
  receiver.openOrders();
  const orders = await replay(site, { group: find(NIGHT.orders).id, reason: 'the receiver has its orders again' });

  say('2. pictures were asked for by a misspelt name: the inputs are mended, first as a dry run');
  const mend = { group: find(NIGHT.misspelt).id, patch: [{ op: 'replace', path: '/source', value: 'gimp.png' }] };
  const { body: dry } = await call(site.deadLettersUrl, 'POST', '/v1/replays', { ...mend, dryRun: true });
  say(`   ${String(dry['replayed'])} would be replayed, ${String(dry['refused'])} refused; one of them:`);
  say(`   ${JSON.stringify((dry['samples'] as readonly unknown[])[0])}`);
  const misspelt = await replay(site, { ...mend, reason: 'the name is gimp.png', waves: [10, 1_000] });

  say('3. a file had not come yet: it is there now, and everything goes at once');
  await copyFile(join(dataDirectory(), 'stocks.csv'), join(OUTPUT_DIRECTORY, missing));
  const late = await replay(site, { group: find(NIGHT.missing).id, reason: 'the file has come', waves: 'none' });

  say(`4. ${NIGHT.poison} pictures are none, and nothing can mend that: they are discarded`);
  const discarded = await discard(site, find(NIGHT.poison).id);
  const isProven = await prove(site, groups);
  return orders && misspelt && late && discarded && isProven;
}

async function submitAll({ producerUrl }: MorningSite, tasks: readonly unknown[]): Promise<void> {
  for (let from = 0; from < tasks.length; from += BATCH) {
    const { status } = await call(producerUrl, 'POST', '/v1/tasks/batch', { tasks: tasks.slice(from, from + BATCH) });
    if (status >= 300) throw new Error(`a batch of the night was answered ${status}`);
  }
}

async function untilGrouped({ deadLettersUrl }: MorningSite): Promise<readonly Group[]> {
  const line = new ProgressLine(process.stdout, systemClock);
  const untilMs = systemClock.monotonicMs() + WITHIN_MS;
  for (;;) {
    const { body } = await call(deadLettersUrl, 'GET', `/v1/failure-groups?minOpen=${NIGHT.poison}`);
    const groups = body['items'] as readonly Group[];
    const letters = groups.reduce((sum, { openLetters }) => sum + openLetters, 0);
    line.show(letters / MORNING_TASKS, `${letters} dead letters in ${groups.length} groups`);
    if (letters >= MORNING_TASKS) {
      line.end();
      return groups;
    }
    if (systemClock.monotonicMs() > untilMs) throw new Error(`only ${letters} tasks of the night died in time`);
    await systemClock.sleep(200);
  }
}

/** Makes a replay and watches it to its end; true where every letter's task succeeded. */
async function replay({ deadLettersUrl, say }: MorningSite, wanted: object): Promise<boolean> {
  const made = await call(deadLettersUrl, 'POST', '/v1/replays', wanted);
  if (made.status !== 201) throw new Error(`the replay was answered ${made.status}: ${JSON.stringify(made.body)}`);
  const line = new ProgressLine(process.stdout, systemClock);
  const untilMs = systemClock.monotonicMs() + WITHIN_MS;
  for (;;) {
    const { body } = await call(deadLettersUrl, 'GET', `/v1/replays/${String(made.body['id'])}`);
    const { state, stateReason, items, wave, counts } = body as unknown as Replay;
    const succeeded = counts['succeeded'] ?? 0;
    line.show(items === 0 ? 1 : succeeded / items, `wave ${wave}, ${succeeded} of ${items} succeeded`);
    if (state !== 'running' || systemClock.monotonicMs() > untilMs) {
      line.end();
      if (state !== 'finished') say(`   the replay is ${state}: ${stateReason ?? 'not done in time'}`);
      return state === 'finished' && succeeded === items;
    }
    await systemClock.sleep(200);
  }
}

async function discard({ deadLettersUrl, say }: MorningSite, group: string): Promise<boolean> {
  const { status, body } = await call(deadLettersUrl, 'POST', '/v1/dead-letters/discard', {
    filter: `group:${group}`,
    reason: 'these files are no pictures',
  });
  say(`   ${status} ${JSON.stringify(body)}`);
  return status === 200;
}

/** What is left open of the night, and what the audit says was done. */
async function prove({ deadLettersUrl, say }: MorningSite, groups: readonly Group[]): Promise<boolean> {
  const views = await Promise.all(
    groups.map(async ({ id }) => (await call(deadLettersUrl, 'GET', `/v1/failure-groups/${id}`)).body),
  );
  const open = views.reduce((sum, view) => sum + Number(view['openLetters']), 0);
  const { body } = await call(deadLettersUrl, 'GET', '/v1/audit?limit=200');
  const acts = new Map<string, number>();
  for (const { action } of body['items'] as readonly { readonly action: string }[])
    acts.set(action, (acts.get(action) ?? 0) + 1);
  say();
  say(
    `open letters of the night: ${open}; the audit has ${[...acts].map(([action, times]) => `${times} × ${action}`).join(', ')}`,
  );
  return open === 0;
}

function whatOf({ error }: Group): string {
  return [error.type, error.message].filter((part) => part !== null).join(': ');
}
