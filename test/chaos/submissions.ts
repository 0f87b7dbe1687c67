/** What was handed in and what was answered: the log of the submitting side, kept outside Warren. */
import { appendFileSync } from 'node:fs';

/** Where a submission came in. */
export type Door = 'http' | 'amqp';

/** What the submitter knows. `unknown`: no answer, or one that promises nothing; the task may be there or not. */
export type Answer = 'accepted' | 'refused' | 'unknown';

/** One submission. */
export interface Submission {
  /** Its own name: the business key of the task, and over AMQP the message id. */
  readonly key: string;
  /** Name of its kind. */
  readonly kind: string;
  readonly door: Door;
  readonly answer: Answer;
  /** What was answered over HTTP; AMQP knows no ids. */
  readonly taskId?: string;
  /** How often it was handed in: over AMQP until it was confirmed, each time under one message id. */
  readonly times: number;
}

/** Collects entries, and writes each down before anything else happens. */
export class Log<T> {
  readonly all: T[] = [];
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  add(entry: T): void {
    this.all.push(entry);
    appendFileSync(this.#file, `${JSON.stringify(entry)}\n`);
  }
}
