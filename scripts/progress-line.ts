/** Progress for people: one line that is drawn anew on a terminal, a line every two seconds elsewhere. */
import type { WriteStream } from 'node:tty';
import type { Clock } from '../shared/time/clock.ts';

const BAR_WIDTH = 30;
const LINE_EVERY_MS = 2_000;

/** Draws how far something is. */
export class ProgressLine {
  readonly #out: WriteStream;
  readonly #clock: Clock;
  #lastMs = Number.NEGATIVE_INFINITY;
  #lastText = '';

  constructor(out: WriteStream, clock: Clock) {
    this.#out = out;
    this.#clock = clock;
  }

  /** Shows `fraction` (0 to 1) and a few words. */
  show(fraction: number, words: string): void {
    const filled = Math.round(fraction * BAR_WIDTH);
    const percent = String(Math.floor(fraction * 100)).padStart(3);
    const text = `[${'#'.repeat(filled)}${'.'.repeat(BAR_WIDTH - filled)}] ${percent} %  ${words}`;
    if (this.#out.isTTY) {
      this.#out.write(`\r\u001B[K${text.slice(0, Math.max(20, this.#out.columns - 1))}`);
    } else if (this.#clock.monotonicMs() - this.#lastMs >= LINE_EVERY_MS) {
      this.#out.write(`${text}\n`);
      this.#lastMs = this.#clock.monotonicMs();
      this.#lastText = text;
    }
    this.#pending = text;
  }

  /** Ends the line with what was shown last. */
  end(): void {
    if (this.#out.isTTY) this.#out.write('\n');
    else if (this.#pending !== '' && this.#pending !== this.#lastText) this.#out.write(`${this.#pending}\n`);
  }

  #pending = '';
}
