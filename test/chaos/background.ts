/** Something that acts beside the run until it is stopped, without waiting for its answers. */

/** A loop, and what it has asked for that is not answered yet. */
export class Background {
  readonly #underWay = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  #loop: Promise<void> | undefined;

  /** Aborts once it is to stop. */
  get signal(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Askings that are not answered yet. */
  get underWay(): number {
    return this.#underWay.size;
  }

  /** Begins the loop, which ends soon after the signal aborts. */
  start(loop: () => Promise<void>): void {
    this.#loop ??= loop();
  }

  /** Ends the loop, and resolves when all that was asked is answered. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
    await Promise.all(this.#underWay);
  }

  /** Waits for it at the end; it never rejects. */
  track(asking: Promise<void>): void {
    this.#underWay.add(asking);
    void asking.finally(() => this.#underWay.delete(asking));
  }
}
