/** What a person sees of a run: lines that stay, and on a terminal one below them that goes on changing. */
import type { WriteStream } from 'node:tty';

/** Writes to one stream. */
export class Display {
  readonly #out: WriteStream;
  #shown = '';

  constructor(out: WriteStream) {
    this.#out = out;
  }

  /** A line that stays. */
  line(text: string): void {
    this.#clear();
    this.#out.write(`${text}\n`);
    this.#draw();
  }

  /** The line at the bottom; nothing where this is no terminal. */
  show(text: string): void {
    this.#clear();
    this.#shown = text;
    this.#draw();
  }

  /** Takes the line at the bottom away. */
  end(): void {
    this.#clear();
    this.#shown = '';
  }

  #clear(): void {
    if (this.#out.isTTY && this.#shown !== '') this.#out.write('\r\u001B[K');
  }

  #draw(): void {
    if (this.#out.isTTY && this.#shown !== '')
      this.#out.write(this.#shown.slice(0, Math.max(20, this.#out.columns - 1)));
  }
}
