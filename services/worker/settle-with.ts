/** `ctx.settleWith`: the settle of an attempt inside the transaction that its handler has open on Warren's database. */
import { codeOf, toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { encodeParameter } from '../../shared/postgres/statement.ts';
import type { Columns, RowOf, Statement } from '../../shared/postgres/statement.ts';
import type { SettlingClient } from '../../shared/tasks/settling-client.ts';
import type { AttemptProof } from './ask-until-answered.ts';
import { enterSchema, leaveSchema, markTransaction, spoilTransaction, unmarkTransaction } from './settle-with.sql.ts';
import { readSettled, settleSucceeded } from './settles.sql.ts';

/**
 * Milliseconds that the transaction may stand idle once it holds the task's row: a client that was forgotten, or whose network
 * died, must not keep others from the task.
 */
const IDLE_MS = 10_000;

/** What Postgres says of a client that cannot settle, by SQLSTATE. */
const REFUSALS: Readonly<Record<string, string>> = {
  '25P01': 'no transaction is open: send begin on this client first, and pass the client, not its pool',
  '25P02': 'its transaction has already failed: roll it back',
  '25006': 'its transaction is read-only',
  '42P01': "Warren's tables are not in the database of this client",
  '42501': "the role of this client may not write Warren's tables",
};

/**
 * Settles as succeeded with `result`, JSON bytes, or `undefined` for none. The caller commits. Throws `settle-refused` with
 * `reason`; `claim-lost`, where the transaction can no longer be committed; and what `client` throws otherwise.
 */
export async function settleWith(
  client: SettlingClient,
  { taskId, attempt, claimId }: AttemptProof,
  result: Buffer | undefined,
  schema: string,
): Promise<void> {
  try {
    await send(client, markTransaction);
    await send(client, unmarkTransaction);
    const [entered] = await send(client, enterSchema, schema, IDLE_MS);
    // The sweeper invites at once what may start: nobody here knows when the transaction is committed.
    const settled = await send(client, settleSucceeded, [taskId], [attempt], [claimId], [result ?? null], [], 0);
    if (settled.length === 0) {
      const [row] = await send(client, readSettled, [taskId]);
      // Whoever swallows the error and commits would keep work that does not count.
      await spoil(client);
      if (row === undefined) {
        throw new WarrenError('settle-refused', { reason: 'the task is not in the database of this client' });
      }
      const isOurs = row.claim_id === claimId && Number(row.attempt) === attempt;
      if (isOurs) throw new WarrenError('settle-refused', { reason: 'the attempt is settled already' });
      throw new WarrenError('claim-lost', { taskId, attempt });
    }
    await send(client, leaveSchema, entered?.path ?? '');
  } catch (thrown) {
    const reason = REFUSALS[codeOf(thrown) ?? ''];
    throw reason === undefined ? toError(thrown) : new WarrenError('settle-refused', { reason }, thrown);
  }
}

/** Without a name: what is prepared on a client of others is theirs to name. */
async function send<P extends readonly unknown[], C extends Columns>(
  client: SettlingClient,
  { text }: Statement<P, C>,
  ...params: P
): Promise<readonly RowOf<C>[]> {
  const { rows } = await client.query({ text, values: params.map((value) => encodeParameter(value)) });
  return rows as readonly RowOf<C>[];
}

async function spoil(client: SettlingClient): Promise<void> {
  try {
    await send(client, spoilTransaction);
  } catch {
    return; // which is what it is for
  }
}
