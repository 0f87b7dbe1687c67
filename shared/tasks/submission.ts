/** A task as it is asked for: checked, ready to be accepted. Both front doors make these; the submitter stores them. */
import type { ConflictRule } from '../amqp/message.ts';
import type { ErrorCode } from '../errors/catalogue.ts';
import type { TraceText } from '../observability/trace-context.ts';
import type { Callback } from './callback.ts';
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

/** How long a unique key is held: while its task waits, while it has not ended, or for so long whatever becomes of it. */
export type KeyHold =
  | { readonly kind: 'waiting' }
  | { readonly kind: 'unfinished' }
  /** Milliseconds from acceptance. */
  | { readonly kind: 'window'; readonly withinMs: number };

/** A key of which there is one task of a type at a time. */
export interface UniqueRule {
  readonly key: string;
  readonly hold: KeyHold;
  /**
   * While another task of the type holds the key: that task is the answer; or, where it waits, it becomes what is submitted now; or a
   * refusal is the answer.
   */
  readonly onConflict: ConflictRule;
  /** With `replace`: milliseconds from the acceptance of the task that holds the key after which it is put off no more. */
  readonly maxWaitMs?: number;
}

/** A file in the store that holds the whole input of a task. */
export interface InputFile {
  readonly id: string;
  readonly bytes: number;
  /** 64 hexadecimal digits. */
  readonly sha256: string;
}

/** A checked submission. */
export interface Submission {
  readonly type: string;
  readonly queue: string;
  /** 0 to 9. */
  readonly priority: number;
  /** 1 to 100. */
  readonly maxAttempts: number;
  /** The bytes of the input's JSON, exactly as sent; where there is an `inputFile` an outline of it. */
  readonly input: Buffer;
  /** Where the input is that is too large for the row. */
  readonly inputFile?: InputFile;
  /** The id that its task shall have; absent: any. */
  readonly taskId?: string;
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
  /** The Idempotency-Key of the HTTP request, of `publisher`, de-duplicated within seven days. */
  readonly idempotency?: {
    readonly key: string;
    /** SHA-256 of the request's body. */
    readonly digest: Buffer;
  };
  readonly unique?: UniqueRule;
  /** Under which its type limits how many run at once; absent where it does not. */
  readonly concurrencyKey?: string;
  /** Under which its type limits how many start within a time; absent where it does not. */
  readonly rateKey?: string;
  /** Who is to be told how it ended. */
  readonly callback?: Callback;
  /** Where it stands in a trace. */
  readonly trace?: TraceText;
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
  /** This message id or idempotency key came before with the same content; `became`: what was answered then, about task `id`. */
  | {
      readonly kind: 'duplicate';
      readonly id: string;
      readonly became: 'accepted' | 'existing' | 'replaced';
      readonly acceptedAt: Date;
    }
  /** Another task holds the unique key: that is the answer. */
  | { readonly kind: 'existing'; readonly id: string }
  /** A task that waits held the unique key; it has become what was submitted. */
  | { readonly kind: 'replaced'; readonly id: string }
  | { readonly kind: 'refused'; readonly fault: SubmissionFault };
