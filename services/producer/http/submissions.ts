/** The way of a submission over HTTP: check, look again where a name was missed, accept. */
import { toError } from '../../../shared/errors/to-error.ts';
import { isWarrenError, WarrenError } from '../../../shared/errors/warren-error.ts';
import type { Metrics } from '../../../shared/observability/metrics.ts';
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
  readonly metrics: Pick<Metrics, 'tasksAccepted' | 'submissionsRefused'>;
}

/** A task that was accepted. */
export interface AcceptedSubmission {
  readonly submission: Submission;
  readonly accepted: Extract<Acceptance, { readonly kind: 'accepted' }>;
}

/** Accepts one body from `publisher`. Throws what is wrong with it, `database-unavailable`, `outbox-full`. */
export async function acceptSubmission(
  bytes: Buffer,
  publisher: string,
  deps: SubmissionDeps,
): Promise<AcceptedSubmission> {
  const { catalog, limits, metrics, submit } = deps;
  let checked: CheckedSubmission = checkHttpSubmission(bytes, catalog, limits);
  if (isMiss(checked)) {
    await catalog.refreshAfterMiss();
    checked = checkHttpSubmission(bytes, catalog, limits);
  }
  if (checked.kind === 'refused') throw refusal(checked.faults, metrics);
  const submission = { ...checked.submission, publisher };
  const acceptance = await submit(submission);
  switch (acceptance.kind) {
    case 'accepted':
      metrics.tasksAccepted.add(1, submission.type, 'http');
      return { submission, accepted: acceptance };
    case 'refused':
      throw refusal([acceptance.fault], metrics);
    case 'duplicate':
      throw new WarrenError('internal'); // only a message id makes one, and there is none here
  }
}

/** One item of a batch: its failure is a value, whatever it is. */
export async function acceptItem(
  bytes: Buffer,
  publisher: string,
  deps: SubmissionDeps,
): Promise<AcceptedSubmission | WarrenError> {
  try {
    return await acceptSubmission(bytes, publisher, deps);
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
