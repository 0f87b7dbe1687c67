/** What this worker holds: claims, each a batch, with how many of their tasks are not settled yet. */

/** Counts the open tasks of each claim. Pure bookkeeping; Postgres decides. */
export class ClaimBook {
  readonly #open = new Map<string, number>();
  readonly #finished: string[] = [];

  /** A claim statement goes out: the claim is ours from now on, however its answer gets lost. */
  begin(claimId: string): void {
    this.#open.set(claimId, 0);
  }

  /** The statement answered: so many tasks were won. */
  won(claimId: string, count: number): void {
    if (count === 0) this.#open.delete(claimId);
    else this.#open.set(claimId, count);
  }

  /** True where the claim is ours and something of it is open or may be. */
  has(claimId: string): boolean {
    return this.#open.has(claimId);
  }

  /**
   * Claims of which nothing will run any more once `settling` (claim ids, one per task) are settled, and those that finished
   * since the last call: the settle statement deletes them.
   */
  finishedWith(settling: readonly string[]): string[] {
    const counts = new Map<string, number>();
    for (const claimId of settling) counts.set(claimId, (counts.get(claimId) ?? 0) + 1);
    const ending = [...counts].filter(([claimId, count]) => this.#open.get(claimId) === count).map(([id]) => id);
    return [...ending, ...this.#finished.splice(0)];
  }

  /** These tasks (claim ids, one per task) are settled. `deleted` are the claims that the statement deleted. */
  settled(claimIds: readonly string[], deleted: readonly string[]): void {
    const gone = new Set(deleted);
    for (const claimId of claimIds) {
      const open = this.#open.get(claimId);
      if (open === undefined) continue; // lost with its lease: the reaper still finds by its row what runs
      const left = open - 1;
      if (left > 0) this.#open.set(claimId, left);
      else {
        this.#open.delete(claimId);
        // Its last tasks were settled in two statements at once, so neither could know that it was the last.
        if (!gone.has(claimId)) this.#finished.push(claimId);
      }
    }
  }

  /** Finished claims that no statement has deleted yet, and forgets them. */
  takeFinished(): string[] {
    return this.#finished.splice(0);
  }

  /** Takes finished claims back that no statement has deleted after all. */
  keepFinished(claimIds: readonly string[]): void {
    this.#finished.push(...claimIds);
  }

  /** The worker lost its lease: nothing is ours any more. */
  clear(): void {
    this.#open.clear();
    this.#finished.length = 0;
  }
}
