/** Ties a ScaledObject to pods: KEDA's polls and the HPA's syncs, with what triggers say at each. */
import { NO_MEMORY, sync } from './hpa.ts';
import type { Memory } from './hpa.ts';
import { metricOf, poll } from './keda.ts';
import type { Reading } from './keda.ts';
import type { Pods } from './pods.ts';
import { targetOf } from './scaled-object.ts';
import type { ScaledObject } from './scaled-object.ts';
import { readTrigger } from './triggers.ts';
import type { Places } from './triggers.ts';

/** Scales one Deployment. */
export class Autoscaler {
  failedReadings = 0;
  readonly #object: ScaledObject;
  readonly #pods: Pick<Pods, 'desired' | 'scaleTo'>;
  readonly #places: Places;
  readonly #failuresInRow: number[];
  #memory: Memory = NO_MEMORY;
  #lastActiveSeconds: number | undefined;

  constructor(object: ScaledObject, pods: Pick<Pods, 'desired' | 'scaleTo'>, places: Places) {
    this.#object = object;
    this.#pods = pods;
    this.#places = places;
    this.#failuresInRow = object.triggers.map(() => 0);
  }

  /** Every `pollingInterval`: between none and one. */
  async poll(atSeconds: number): Promise<void> {
    const { minReplicaCount, cooldownPeriod, fallback } = this.#object;
    const triggers = (await this.#read()).map(({ reading, activation }) => ({ reading, activation }));
    const current = this.#pods.desired;
    const seen = { atSeconds, current, minReplicaCount, cooldownPeriod, fallback, triggers };
    const { replicas, lastActiveSeconds } = poll({ ...seen, lastActiveSeconds: this.#lastActiveSeconds });
    this.#lastActiveSeconds = lastActiveSeconds;
    this.#pods.scaleTo(replicas);
  }

  /** Every 15 seconds: between one and more. */
  async sync(atSeconds: number): Promise<void> {
    const { minReplicaCount, maxReplicaCount: max, behavior, fallback } = this.#object;
    const readings = await this.#read();
    for (const [index, { reading }] of readings.entries()) {
      this.#failuresInRow[index] = reading === undefined ? (this.#failuresInRow[index] ?? 0) + 1 : 0;
    }
    const metrics = readings.map(({ reading, average }, index) =>
      metricOf(reading, average, this.#failuresInRow[index] ?? 0, fallback),
    );
    const current = this.#pods.desired;
    const min = Math.max(1, minReplicaCount);
    const { replicas, memory } = sync({ atSeconds, current, min, max, metrics, behavior, memory: this.#memory });
    this.#memory = memory;
    this.#pods.scaleTo(replicas);
  }

  async #read(): Promise<
    readonly { readonly reading: Reading; readonly average: number; readonly activation: number }[]
  > {
    return await Promise.all(
      this.#object.triggers.map(async (trigger) => {
        const reading = await readTrigger(trigger, this.#places);
        if (reading === undefined) this.failedReadings += 1;
        return { reading, ...targetOf(trigger) };
      }),
    );
  }
}
