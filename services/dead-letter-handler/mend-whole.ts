/** Mends inputs that may be in the store of files: the outline in a task's row is nothing that a patch could be meant for. */
import { isWarrenError } from '../../shared/errors/warren-error.ts';
import type { InputStore } from '../../shared/tasks/input-store.ts';
import type { Mend, Mended } from './mend.ts';

/** An input as its row has it. */
export interface InputOfRow {
  readonly type: string;
  readonly input: Buffer;
  readonly inputFile: string | null;
}

/** What mending whole inputs needs. */
export interface MendWholeDeps {
  readonly inputs: Pick<InputStore, 'read' | 'isLarge' | 'keep' | 'outline'>;
}

/**
 * Mends the whole input of a task; what comes out may be too large for its row. Throws `file-store-unavailable` and
 * `database-unavailable`: then nobody knows what would come out.
 */
export async function mendWhole(
  mend: Mend,
  { type, input, inputFile }: InputOfRow,
  { inputs }: MendWholeDeps,
): Promise<Mended> {
  if (inputFile === null) return mend(input, type);
  let whole: Buffer;
  try {
    whole = await inputs.read(inputFile);
  } catch (thrown) {
    if (!isWarrenError(thrown, 'input-missing') && !isWarrenError(thrown, 'file-store-missing')) throw thrown;
    return { kind: 'skip', code: 'input-missing', why: thrown.message.slice(0, 1_000) };
  }
  return mend(whole, type);
}
