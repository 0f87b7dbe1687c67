/** The way of a submission over HTTP: check, look again where a name was missed, accept. */
import { toError } from '../../../shared/errors/to-error.ts';
import { isWarrenError, WarrenError } from '../../../shared/errors/warren-error.ts';
import type { Metrics } from '../../../shared/observability/metrics.ts';
import type { TraceText } from '../../../shared/observability/trace-context.ts';
import { checkHttpSubmission, isMiss } from '../../../shared/tasks/check-submission.ts';
import type { CheckedSubmission, SubmissionLimits } from '../../../shared/tasks/check-submission.ts';
import type { Acceptance, Submission, SubmissionFault } from '../../../shared/tasks/submission.ts';
import type { Catalog } from '../../../shared/tasks/type-catalog.ts';

/** What submissions need. */
export interface SubmissionDeps {
  readonly catalog: Catalog & { refreshAfterMiss(): Promise<void> };
  /** Throws `database-unavailable` and `outbox-full`. */
  readonly submit: (submission: Submission) => Promise<Acceptance>;
  readonly limits: SubmissionLimits;
  /** Puts an input that is too large for its row into the store. Throws `file-store-unavailable`, `database-unavailable`. */
  readonly storeInput: (submission: Submission) => Promise<Submission>;
  readonly metrics: Pick<Metrics, 'tasksAccepted' | 'submissionsRefused' | 'submissionsRepeated'>;
}

/** Who submits, and the key under which the request must not be done twice. */
export interface Submitting {
  readonly publisher: string;
  readonly idempotency: Submission['idempotency'];
  /** Milliseconds by which its batch puts it off; `undefined`: its batch does not say when. */
  readonly delayMs?: number | undefined;
  /** Where the request stands in a trace. */
  readonly trace?: TraceText | undefined;
}

/** A task that was accepted. */
export interface AcceptedSubmission {
  readonly kind: 'accepted';
  readonly submission: Submission;
  readonly accepted: Extract<Acceptance, { readonly kind: 'accepted' }>;
  /** True where it was accepted by an earlier request under the same Idempotency-Key. */
  readonly isReplayed: boolean;
}

/** A task that holds the unique key, and so is the answer; perhaps it has become what was submitted. */
export interface ExistingTask {
  readonly kind: 'existing';
  readonly id: string;
  readonly isReplaced: boolean;
  readonly isReplayed: boolean;
}

/** Accepts one body. Throws what is wrong with it, `unique-conflict`, `database-unavailable`, `outbox-full`. */
export async function acceptSubmission(
  bytes: Buffer,
  { publisher, idempotency, delayMs, trace }: Submitting,
  deps: SubmissionDeps,
): Promise<AcceptedSubmission | ExistingTask> {
  const { catalog, limits, metrics, submit, storeInput } = deps;
  let checked: CheckedSubmission = checkHttpSubmission(bytes, catalog, limits);
  if (isMiss(checked)) {
    await catalog.refreshAfterMiss();
    checked = checkHttpSubmission(bytes, catalog, limits);
  }
  if (checked.kind === 'refused') throw refusal(checked.faults, metrics);
  if (delayMs !== undefined && (checked.submission.delayMs ?? checked.submission.runAt) !== undefined) {
    const field = checked.submission.runAt === undefined ? 'delayMs' : 'runAt';
    const reason = 'must not be given in a batch with spreadMs';
    throw refusal([{ code: 'field-invalid', field, reason }], metrics);
  }
  const asked: Submission = {
    ...checked.submission,
    ...(delayMs === undefined ? {} : { delayMs }),
    publisher,
    ...(idempotency === undefined ? {} : { idempotency }),
    ...(trace === undefined ? {} : { trace }),
  };
  const submission = await storeInput(asked);
  const acceptance = await submit(submission);
  switch (acceptance.kind) {
    case 'accepted':
      metrics.tasksAccepted.add(1, submission.type, 'http');
      return { kind: 'accepted', submission, accepted: acceptance, isReplayed: false };
    case 'refused':
      throw refusal([acceptance.fault], metrics);
    case 'existing':
    case 'replaced':
      metrics.submissionsRepeated.add(1, 'http', 'unique key');
      return {
        kind: 'existing',
        id: acceptance.id,
        isReplaced: acceptance.kind === 'replaced',
        isReplayed: false,
      };
    case 'duplicate':
      metrics.submissionsRepeated.add(1, 'http', 'idempotency key');
      return acceptance.became === 'accepted'
        ? { kind: 'accepted', submission, accepted: asAccepted(submission, acceptance), isReplayed: true }
        : { kind: 'existing', id: acceptance.id, isReplaced: acceptance.became === 'replaced', isReplayed: true };
  }
}

/** As it was answered at its acceptance: all of that follows from the submission and the instant. */
function asAccepted(
  { delayMs = 0, runAt }: Submission,
  { id, acceptedAt }: { readonly id: string; readonly acceptedAt: Date },
): AcceptedSubmission['accepted'] {
  const at = delayMs > 0 ? new Date(acceptedAt.getTime() + delayMs) : runAt;
  return at !== undefined && at > acceptedAt
    ? { kind: 'accepted', id, state: 'scheduled', acceptedAt, runAt: at }
    : { kind: 'accepted', id, state: 'pending', acceptedAt, runAt: undefined };
}

/** One item of a batch: its failure is a value, whatever it is. */
export async function acceptItem(
  bytes: Buffer,
  submitting: Submitting,
  deps: SubmissionDeps,
): Promise<AcceptedSubmission | ExistingTask | WarrenError> {
  try {
    return await acceptSubmission(bytes, submitting, deps);
  } catch (thrown) {
    return isWarrenError(thrown) ? thrown : new WarrenError('internal', {}, toError(thrown));
  }
}

function refusal(faults: readonly SubmissionFault[], metrics: SubmissionDeps['metrics']): WarrenError {
  const [first] = faults;
  const code = first?.code ?? 'field-invalid';
  metrics.submissionsRefused.add(1, 'http', code);
  return new WarrenError(code, { field: first?.field, reason: first?.reason, faults });
}
