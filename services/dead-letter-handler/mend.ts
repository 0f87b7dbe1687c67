/** Mends inputs by a patch, and refuses what the front door would refuse. Pure: no clock, no database. */
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { checkInput, limitKeysOf } from '../../shared/tasks/check-submission.ts';
import type { SubmissionLimits } from '../../shared/tasks/check-submission.ts';
import { PatchMisfit, readPatch } from '../../shared/tasks/json-patch.ts';
import { readTree, renderTree } from '../../shared/tasks/json-tree.ts';
import type { Submission } from '../../shared/tasks/submission.ts';
import type { Catalog } from '../../shared/tasks/type-catalog.ts';
import type { SkipCode } from '../../shared/dead-letters/replay-state.ts';

/** Under which keys it counts towards the limits of its type. */
type LimitKeys = Pick<Submission, 'concurrencyKey' | 'rateKey'>;

/** The input as it shall be, or why it stays as it is. */
export type Mended =
  | ({ readonly kind: 'ok'; readonly input: Buffer } & LimitKeys)
  | { readonly kind: 'skip'; readonly code: SkipCode; readonly why: string };

/** Mends the input of one task of a type. Never throws. */
export type Mend = (input: Buffer, type: string) => Mended;

/** What mending needs to know. */
export interface MendDeps {
  readonly catalog: Catalog;
  readonly limits: Pick<SubmissionLimits, 'messageBytes' | 'depth'>;
}

/** Reads a patch. Throws `field-invalid` for one that can fit nothing. */
export function createMend(patch: Buffer, { catalog, limits }: MendDeps): Mend {
  const apply = readPatchOrThrow(patch);
  return (input, type) => {
    try {
      const patched = apply(readTree(input.toString('utf8')));
      const mended = Buffer.from(renderTree(patched, { maxLength: limits.messageBytes, maxDepth: limits.depth }));
      const [fault, ...others] = checkInput(mended, type, catalog, limits);
      if (fault === undefined) return { kind: 'ok', input: mended, ...keysOf(mended, type, catalog) };
      const more = others.length === 0 ? '' : `; also at fault: ${others.map(({ field }) => field).join(', ')}`;
      const code = fault.code === 'task-type-unknown' ? 'task-type-unknown' : 'input-refused';
      return { kind: 'skip', code, why: `${fault.field}: ${fault.reason}${more}`.slice(0, 1_000) };
    } catch (thrown) {
      // Whatever it is: one input must not hold up all those that come after it.
      const { name, message } = toError(thrown);
      const why = name === 'SyntaxError' ? 'the input is no JSON' : message;
      return { kind: 'skip', code: 'patch-misfit', why: why.slice(0, 1_000) };
    }
  };
}

function keysOf(mended: Buffer, type: string, catalog: Catalog): LimitKeys {
  const known = catalog.find(type);
  if (known?.concurrency === undefined && known?.rate === undefined) return {};
  return limitKeysOf(known, JSON.parse(mended.toString('utf8')));
}

function readPatchOrThrow(patch: Buffer): ReturnType<typeof readPatch> {
  try {
    return readPatch(readTree(patch.toString('utf8')));
  } catch (thrown) {
    if (thrown instanceof PatchMisfit)
      throw new WarrenError('field-invalid', { field: 'patch', reason: thrown.message });
    throw thrown;
  }
}
