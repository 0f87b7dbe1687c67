/** Invites the next task of a limited type as soon as one of this worker's has made room. */
import { toError } from '../../shared/errors/to-error.ts';
import type { Logger } from '../../shared/observability/log.ts';
import { releaseGroup } from '../../shared/tasks/held-back.ts';
import type { ReleaseDeps } from '../../shared/tasks/held-back.ts';

/** What it needs. */
export interface PlacesDeps extends ReleaseDeps {
  readonly log: Logger;
}

/**
 * Looks after one group at a time, each once however many places it freed meanwhile. What fails here, or is cut off, the producer
 * finds within a second.
 */
export class Places {
  readonly #deps: PlacesDeps;
  readonly #freed = new Map<string, { readonly type: string; readonly key: string }>();
  #running: Promise<void> | undefined;

  constructor(deps: PlacesDeps) {
    this.#deps = deps;
  }

  /** A task of this type and key has left its place. Never throws. */
  free(type: string, key: string): void {
    this.#freed.set(JSON.stringify([type, key]), { type, key });
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
  }

  /** Resolves when nothing is under way. */
  async idle(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    for (let [next] = this.#freed; next !== undefined; [next] = this.#freed) {
      const [name, { type, key }] = next;
      this.#freed.delete(name);
      try {
        await releaseGroup({ reason: 'concurrency', scope: type, key }, this.#deps);
      } catch (thrown) {
        this.#deps.log.debug('places are left to the producer', { taskType: type, err: toError(thrown) });
      }
    }
  }
}
