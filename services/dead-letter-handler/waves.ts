/** How large the waves of a replay are, and how many failures stop it. Pure. */

/** Sizes of waves: 1, 5, 25, 125, …; everything at once; or these sizes, of which the last repeats. */
export type Waves = 'growing' | 'none' | readonly number[];

const FACTOR = 5;
/** Failures of the same that stop a wave, unless the replay says otherwise: so many, and of a large wave this share. */
const STOP_AFTER = 3;
const STOP_SHARE = 0.05;

/** The size of a wave; they count from 1. */
export function waveSize(waves: Waves, wave: number, items: number): number {
  if (waves === 'none') return items;
  if (waves === 'growing') return Math.min(FACTOR ** Math.min(wave - 1, 15), items);
  return Math.min(waves[Math.min(wave, waves.length) - 1] ?? items, items);
}

/** What stops a wave in which `sent` items were sent: that many failures of the same. 1 or more. */
export function stopLimit(stopAfter: number | null, sent: number): number {
  if (stopAfter !== null) return stopAfter;
  return Math.max(1, Math.min(sent, Math.max(STOP_AFTER, Math.ceil(sent * STOP_SHARE))));
}
