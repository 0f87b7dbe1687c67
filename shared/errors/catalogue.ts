/**
 * Every error code of Warren, with its HTTP status, its title and whether trying again can help.
 *
 * A code is at once the problem+json `type`, the `code` field in logs, the CLI's error name and the heading in
 * `docs/reference/errors.md`; a test compares them. Codes are never renamed: clients compare them.
 */

/** What one error code means. */
export interface CatalogueEntry {
  /** HTTP status with which the code is answered. */
  readonly status: number;
  /** One sentence for people: what is wrong and, where there is something to do, what to do. */
  readonly title: string;
  /** True where the same request may succeed later without a change. */
  readonly retryable: boolean;
}

const wrong = (status: number, title: string): CatalogueEntry => ({ status, title, retryable: false });
const later = (status: number, title: string): CatalogueEntry => ({ status, title, retryable: true });

/** The catalogue. */
export const CATALOGUE = {
  // Requests and messages.
  'body-invalid': wrong(400, 'The body is not valid JSON, or not what this address takes.'),
  'body-too-deep': wrong(400, 'The body nests deeper than the limit allows.'),
  'body-too-large': wrong(
    413,
    'The body is larger than the limit allows; inputs may be larger where files.store is set.',
  ),
  'content-type-unsupported': wrong(415, 'Send the body as application/json in UTF-8.'),
  'field-invalid': wrong(400, 'A field has a value that is not allowed.'),
  'header-unknown': wrong(400, 'A warren-* header is not one of the documented ones.'),
  'headers-too-large': wrong(400, 'The headers together are larger than the limit allows.'),
  'id-conflict': wrong(409, 'This message id was used within seven days with other content.'),
  'idempotency-key-invalid': wrong(400, 'The Idempotency-Key is not 1 to 255 printable ASCII characters.'),
  'idempotency-key-in-flight': later(
    409,
    'A request with this Idempotency-Key is under way; ask again for its answer.',
  ),
  'idempotency-key-reused': wrong(422, 'This Idempotency-Key was used within seven days with another body.'),
  'input-invalid': wrong(422, 'The input does not fit the input schema of its task type.'),
  'request-invalid': wrong(400, 'The request is not valid HTTP, or its headers are too large.'),
  'request-timeout': later(408, 'The request did not arrive whole in time.'),
  'method-not-allowed': wrong(405, 'This address does not take this method.'),
  'message-id-missing': wrong(400, 'This installation refuses a publish without message_id.'),
  'number-not-exact': wrong(400, 'A number cannot be kept exactly; send it as a string.'),
  'text-invalid': wrong(400, 'A text holds U+0000 or a lone surrogate, which cannot be stored.'),
  'task-type-unknown': wrong(422, 'No worker has announced this task type; see `warren types apply`.'),
  'queue-unknown': wrong(422, 'No such queue; queues come from announced task types and configuration.'),
  // What is asked for.
  'not-found': wrong(404, 'There is nothing at this address.'),
  'task-not-found': wrong(404, 'There is no task with this id.'),
  'queue-not-found': wrong(404, 'There is no queue of this name; see `warren queue list`.'),
  'flow-not-found': wrong(404, 'There is no flow with this id.'),
  'step-not-found': wrong(404, 'There is no such step of a flow; see the reason.'),
  'flow-not-retryable': wrong(
    409,
    'Only a flow that has ended, and of which nothing is undone, can be retried; a nested one only where it has failed, else by its parent.',
  ),
  'flow-finished': wrong(409, 'The flow has already ended, so this can no longer be done.'),
  'schedule-not-found': wrong(404, 'There is no schedule of this name; see `warren schedule list`.'),
  'schedule-exists': wrong(409, 'There is another schedule of this name; edit that, or take another name.'),
  'schedule-in-code': wrong(
    409,
    'This schedule is defined in code; change it there and run `warren types apply`. Pausing, resuming and running it is possible here.',
  ),
  'schedule-busy': wrong(409, 'A run of this schedule has not ended, and it skips what overlaps.'),
  'schedule-refused': wrong(422, 'What this schedule starts is not accepted as it stands.'),
  'schedule-unreadable': wrong(500, 'The stored definition of this schedule cannot be read; edit it, or remove it.'),
  'dead-letter-not-found': wrong(404, 'There is no dead letter with this id.'),
  'dead-letter-closed': wrong(409, 'The dead letter was already replayed or discarded.'),
  'dead-letter-erased': wrong(410, 'The message of this dead letter was erased, so there is nothing left to replay.'),
  'failure-group-not-found': wrong(404, 'There is no failure group with this id.'),
  'precondition-failed': wrong(412, 'Somebody changed it since you looked; look again and repeat what you want.'),
  'replay-not-found': wrong(404, 'There is no replay with this id.'),
  'replay-state-wrong': wrong(409, 'The replay is in a state in which this cannot be done.'),
  'selection-empty': wrong(422, 'No open dead letter is selected, so there is nothing to replay.'),
  'destination-not-allowed': wrong(
    403,
    'This letter was never a Warren task and its destination is not on deadLetters.replayDestinations.',
  ),
  'attempt-not-found': wrong(404, 'The task has no attempt with this number.'),
  'workers-alive': wrong(409, 'Workers are alive; stop all of them first, and wait until their leases have lapsed.'),
  'task-running': wrong(409, 'The task runs, so this cannot be done now; wait until the attempt has ended.'),
  'file-not-found': wrong(404, 'There is no such file; it may have been deleted when its time was over.'),
  'file-store-missing': wrong(
    501,
    'No store of files is configured here; set files.store for the producers and the workers.',
  ),
  'link-invalid': wrong(403, 'The link is not one that was made here; ask for a new one.'),
  'link-expired': wrong(403, 'The time of this link is over; ask for a new one.'),
  'range-invalid': wrong(416, 'The file has no such range of bytes.'),
  'task-finished': wrong(409, 'The task has already ended, so this can no longer be done.'),
  'unique-conflict': wrong(409, 'Another task of this type holds the unique key.'),
  'task-not-editable': wrong(409, 'Only what waits can be edited; wait until the task waits again, or cancel it.'),
  'cursor-invalid': wrong(400, 'The cursor was not made by this API; start without one.'),
  // Who may.
  'token-missing': wrong(401, 'Send a bearer token in the Authorization header.'),
  'token-invalid': wrong(401, 'The bearer token is not known here.'),
  'role-insufficient': wrong(403, 'The role of this token does not allow this.'),
  'origin-refused': wrong(403, 'Without a token only local programs may call, no web page.'),
  // What stands below.
  'outbox-full': later(503, 'RabbitMQ has been away so long that the outbox is full; try again later.'),
  'followers-full': later(503, 'So many follow tasks of this service already that no more may; try again later.'),
  'database-unavailable': later(503, 'Postgres does not answer; try again.'),
  'database-outdated': wrong(500, 'The database is older or newer than this program; run `warren migrate`.'),
  'migration-changed': wrong(
    500,
    'A migration that was already applied has other content now. Use the release that migrated this database, or a new database; `make clean-stack` removes the local ones.',
  ),
  'prefix-mismatch': wrong(500, 'The database belongs to another prefix than the configured one.'),
  'broker-unavailable': later(503, 'RabbitMQ does not answer; try again.'),
  'broker-refused-login': wrong(500, 'RabbitMQ refused the user, the password or the virtual host.'),
  'confirm-late': later(503, 'RabbitMQ has not confirmed a publish in time.'),
  'publish-refused': later(503, 'RabbitMQ refused a publish (nack): a queue is full or its node is leaving.'),
  'publish-buffer-full': later(503, 'Too many publishes await their confirm.'),
  unroutable: wrong(500, 'RabbitMQ has no queue for this routing key; run `warren topology apply`.'),
  'topology-drift': wrong(500, 'A queue or exchange exists with other arguments; see `warren doctor`.'),
  // A task's run.
  'attempt-timeout': later(500, 'The attempt ran longer than the timeout of its task type.'),
  'attempt-interrupted': later(500, 'The attempt was aborted because its worker stops or lost its lease.'),
  'abort-ignored': later(500, 'The handler ignored its abort, and may still run beside the next attempt.'),
  'thread-lost': later(500, 'The thread of the handler ended under it; its worker goes on.'),
  'breaker-open': later(503, 'The circuit breaker of this dependency is open.'),
  'result-unstorable': wrong(500, 'The result of the attempt cannot be stored.'),
  'claim-lost': later(
    500,
    'The attempt has lost its claim, so nothing that it does counts any more; roll back what it has not committed.',
  ),
  'settle-refused': wrong(500, 'ctx.settleWith cannot settle the attempt in this transaction.'),
  'once-unknown': wrong(
    409,
    'A side effect of this task was begun and not finished; find out whether it was done, then pass ifUnknown, or forget its key and replay.',
  ),
  'step-refused': wrong(409, 'ctx.addStep cannot add this to the flow; see the reason.'),
  'once-invalid': wrong(500, 'ctx.once was given what it cannot keep.'),
  'result-too-large': wrong(
    500,
    'The result of the attempt is larger than the limit allows; return less, hand it over by ctx.saveFile, or set files.store.',
  ),
  'file-store-unavailable': later(503, 'The store of files does not take or give it; see the reason, and try again.'),
  'file-too-large': wrong(413, 'The file is larger than files.maxBytes.'),
  'input-missing': wrong(
    500,
    'The input of this task is in the store of files no more, or was changed there; submit it again.',
  ),
  'file-unsaved': later(500, 'The attempt no longer runs for this worker, so its file is not kept.'),
  'worker-lost': later(500, 'The worker of this attempt died or was cut off.'),
  'host-not-allowed': wrong(403, 'This host may not be called; see httpRequest.allowHosts and webhooks.allowHosts.'),
  // Programs.
  'config-invalid': wrong(500, 'The configuration has faults.'),
  'task-module-invalid': wrong(500, 'A task module defines no task type or schedule, or one that breaks a rule.'),
  'server-unreachable': later(503, 'The Warren service does not answer; is it running? See `warren doctor`.'),
  'wait-timeout': later(504, 'The task had not ended when the wait was over.'),
  internal: wrong(500, 'Something went wrong inside; the log of the service says more.'),
} as const satisfies Record<string, CatalogueEntry>;

/** A code of the catalogue. */
export type ErrorCode = keyof typeof CATALOGUE;
