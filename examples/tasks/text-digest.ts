/** `text.digest`: word statistics and a slow digest of a text. It computes without a pause, so it runs in a thread. */
import { createHash, scryptSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { RelativePath, sourcePath } from './files.ts';

const DigestInput = z.strictObject({
  source: RelativePath,
  /** Rounds of hashing over the whole text; each takes about a millisecond per megabyte. */
  rounds: z.int().min(1).max(1_000_000).default(20),
});

/** In a thread, blocking calls are fine: nobody else waits for this loop, and the timeout ends the thread. */
export const textDigest = defineTask({
  name: 'text.digest',
  input: DigestInput,
  isolation: 'thread',
  timeoutMs: 20_000,
  retry: { maxAttempts: 2, firstDelayMs: 500, neverOn: ['ENOENT'] },
  run: ({ source, rounds }, ctx) => {
    const text = readFileSync(sourcePath(source), 'utf8');
    let digest = scryptSync(text, 'warren', 32);
    for (let round = 0; round < rounds; round += 1) {
      digest = createHash('sha256').update(digest).update(text).digest();
      ctx.progress((round + 1) / rounds, 'hashing');
    }
    return { sha256: digest.toString('hex'), ...statistics(text) };
  },
});

function statistics(text: string): { words: number; different: number; top: { word: string; count: number }[] } {
  const counts = new Map<string, number>();
  let words = 0;
  for (const [word] of text.toLowerCase().matchAll(/\p{L}+/gu)) {
    words += 1;
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const top = [...counts]
    .toSorted(([one, a], [other, b]) => b - a || one.localeCompare(other))
    .slice(0, 10)
    .map(([word, count]) => ({ word, count }));
  return { words, different: counts.size, top };
}
