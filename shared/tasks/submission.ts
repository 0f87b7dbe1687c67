/** A task as it is asked for: checked, ready to be accepted. Both front doors make these; the submitter stores them. */
import type { ErrorCode } from '../errors/catalogue.ts';
import type { TaskState } from './state-machine.ts';

/** What an AMQP publisher sent beside the body, as stored: texts of JSON. */
export interface Origin {
  readonly exchange: string;
  readonly routingKey: string;
  /** Properties as JSON text. */
  readonly properties: string;
  /** Headers in the tagged form of `headersToStored`, as JSON text. */
  readonly headers: string;
}

/** A checked submission. */
export interface Submission {
  readonly type: string;
  readonly queue: string;
  /** 0 to 9. */
  readonly priority: number;
  /** 1 to 100. */
  readonly maxAttempts: number;
  /** The bytes of the input's JSON, exactly as sent. */
  readonly input: Buffer;
  /** Milliseconds from acceptance until it may start. */
  readonly delayMs?: number;
  /** Not before this instant. */
  readonly runAt?: Date;
  /** Not started after this instant: it expires. */
  readonly deadline?: Date;
  readonly businessKey?: string;
  readonly tags?: readonly string[];
  readonly correlationId?: string;
  /** Who submitted it over HTTP: the name of the token. Over AMQP that is `external.publisher`. */
  readonly publisher?: string;
  /** The publisher's own id, de-duplicated per publisher and type within seven days. */
  readonly external?: {
    /** Authenticated user_id, else app_id, else the empty text. */
    readonly publisher: string;
    readonly messageId: string;
    /** SHA-256 over what must be the same when the id comes again. */
    readonly digest: Buffer;
  };
  readonly origin?: Origin;
}

/** One thing that is wrong with a submission. `field` is what the sender calls it (`priority`, `input.user.id`, a header). */
export interface SubmissionFault {
  readonly code: ErrorCode;
  readonly field: string;
  readonly reason: string;
}

/** What became of a submission. Refusals are values: one bad row never fails its batch. */
export type Acceptance =
  | {
      readonly kind: 'accepted';
      readonly id: string;
      readonly state: TaskState;
      readonly acceptedAt: Date;
      readonly runAt: Date | undefined;
    }
  /** This message id was accepted before with the same content. */
  | { readonly kind: 'duplicate'; readonly id: string }
  | { readonly kind: 'refused'; readonly fault: SubmissionFault };
