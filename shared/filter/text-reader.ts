/** Walks over the text of a filter. */

/** Where a filter cannot be read, and what is allowed there. Caught by `parseFilter`. */
export class FilterFault extends Error {
  override readonly name = 'FilterFault';
  /** Characters before the fault. */
  readonly position: number;
  readonly reason: string;

  constructor(position: number, reason: string) {
    super(reason);
    this.position = position;
    this.reason = reason;
  }
}

const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['"', '"'],
  ['\\', '\\'],
  ['n', '\n'],
  ['r', '\r'],
  ['t', '\t'],
]);

/** A text and a place in it. */
export class TextReader {
  readonly #text: string;
  #position = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Characters before the place. */
  get position(): number {
    return this.#position;
  }

  get isAtEnd(): boolean {
    return this.#position >= this.#text.length;
  }

  get isAtSpace(): boolean {
    return /\s/.test(this.peek());
  }

  /** The character at the place; empty at the end. */
  peek(): string {
    return this.#text.charAt(this.#position);
  }

  goTo(position: number): void {
    this.#position = position;
  }

  skipSpaces(): void {
    this.match(/\s+/y);
  }

  /** Moves behind `expected` where it stands at the place. */
  take(expected: string): boolean {
    const isThere = this.#text.startsWith(expected, this.#position);
    if (isThere) this.#position += expected.length;
    return isThere;
  }

  /** Moves behind what a sticky pattern finds at the place; `undefined` where it finds nothing there. */
  match(sticky: RegExp): string | undefined {
    const pattern = new RegExp(sticky);
    pattern.lastIndex = this.#position;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.#position += found.length;
    return found;
  }

  /** Reads `"…"`, in which `\"`, `\\`, `\n`, `\r` and `\t` are escapes. */
  readQuoted(): string {
    const start = this.#position;
    this.#position += 1;
    let value = '';
    for (;;) {
      if (this.isAtEnd) throw new FilterFault(start, 'this quote is not closed; a quote inside one is written \\"');
      const next = this.peek();
      this.#position += 1;
      if (next === '"') break;
      if (next !== '\\') {
        value += next;
        continue;
      }
      const escaped = ESCAPES.get(this.peek());
      if (escaped === undefined) {
        throw new FilterFault(this.#position - 1, 'after a backslash only ", \\, n, r and t are allowed');
      }
      value += escaped;
      this.#position += 1;
    }
    return value;
  }

  /** Throws the fault at the place. */
  fail(reason: string): never {
    throw new FilterFault(this.#position, reason);
  }
}
