/** A night that went wrong: 2 000 tasks that die of three faults and of twelve pictures that are none. Used by the demo. */
import type { WorkloadTask } from './workload.ts';

/** Tasks of the night by what they die of. */
export const NIGHT = { orders: 1_500, misspelt: 288, missing: 200, poison: 12 } as const;

/** Makes the tasks. `folder` is this run's own below the samples' directory; `missing` a source that is not there yet. */
export function createNight(options: {
  readonly folder: string;
  readonly poison: string;
  readonly missing: string;
  readonly receiverUrl: string;
}): readonly WorkloadTask[] {
  const { folder, poison, missing, receiverUrl } = options;
  return [
    ...times(NIGHT.orders, (index) => ({
      type: 'notify.webhook',
      input: { url: `${receiverUrl}/orders`, event: 'order.paid', payload: { user: index } },
      maxAttempts: 1,
      tags: ['night'],
    })),
    ...times(NIGHT.misspelt, (index) => ({
      type: 'image.thumbnail',
      input: { source: 'gimp.pgn', width: 16 + (index % 200), output: `${folder}/night-${index}.webp` },
      maxAttempts: 1,
      tags: ['night'],
    })),
    ...times(NIGHT.missing, () => ({
      type: 'text.digest',
      input: { source: missing, rounds: 1 },
      maxAttempts: 1,
      tags: ['night'],
    })),
    ...times(NIGHT.poison, (index) => ({
      type: 'image.thumbnail',
      input: { source: poison, width: 64, output: `${folder}/poison-${index}.webp` },
      maxAttempts: 1,
      tags: ['night'],
    })),
  ];
}

function times(count: number, make: (index: number) => WorkloadTask): WorkloadTask[] {
  return Array.from({ length: count }, (_none, index) => make(index));
}
