/** Task types that hand over files and large results. */
import { createHash } from 'node:crypto';
import { open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';
import type { FileSource, TaskContext } from '../../../shared/tasks/define-task.ts';
import { systemClock } from '../../../shared/time/clock.ts';
import { journalled, note } from './journal.ts';

const RETRY = { maxAttempts: 3, firstDelayMs: 50, maxDelayMs: 200 };
const BLOCK = 65_536;

/** `bytes` bytes that look random and are the same each time. */
export function* blocksOf(bytes: number, seed: string): Generator<Buffer> {
  for (let at = 0; at < bytes; at += BLOCK) {
    const block = createHash('shake256', { outputLength: BLOCK }).update(`${seed}/${at}`).digest();
    yield block.subarray(0, Math.min(BLOCK, bytes - at));
  }
}

const input = z.strictObject({
  ...journalled,
  bytes: z.int().default(0),
  text: z.string().optional(),
  from: z.enum(['path', 'bytes', 'stream']).default('bytes'),
  name: z.string().default('report.bin'),
  contentType: z.string().optional(),
  /** Attempts that fail after they saved. */
  failures: z.int().default(0),
});

async function save(
  { journal, bytes, text, from, name, contentType, failures }: z.output<typeof input>,
  ctx: TaskContext,
): Promise<unknown> {
  note(journal, ctx, 'started');
  const blocks = text === undefined ? blocksOf(bytes, name) : [Buffer.from(text)];
  const source = await sourceOf(from, blocks, ctx);
  const file = await ctx.saveFile(source, { name, ...(contentType === undefined ? {} : { contentType }) });
  if (ctx.attempt <= failures) throw new Error('fails after it saved');
  note(journal, ctx, 'ended');
  return { report: file };
}

async function sourceOf(from: string, blocks: Iterable<Buffer>, ctx: TaskContext): Promise<FileSource> {
  if (from === 'bytes') return Buffer.concat([...blocks]);
  if (from === 'stream') return Readable.from(blocks, { objectMode: false });
  const path = join(await ctx.tempDir(), 'made');
  const file = await open(path, 'wx');
  for (const block of blocks) await file.write(block);
  await file.close();
  return path;
}

/** Saves one file and returns its reference. */
export const saver = defineTask({ name: 'files.save', input, retry: RETRY, run: save });

/** The same in a thread. */
export const threaded = defineTask({
  name: 'files.save-in-thread',
  input,
  retry: RETRY,
  isolation: 'thread',
  run: save,
});

/** Saves a file that comes a piece at a time, so that it is never whole within the time of a test. */
export const slow = defineTask({
  name: 'files.slow',
  input: z.strictObject({ ...journalled, failures: z.int().default(0) }),
  retry: RETRY,
  run: async ({ journal, failures }, ctx) => {
    async function* trickle(): AsyncGenerator<Buffer> {
      yield Buffer.alloc(100_000);
      note(journal, ctx, 'started');
      if (ctx.attempt > failures) return;
      for (;;) {
        await systemClock.sleep(50, ctx.signal);
        yield Buffer.alloc(1_000);
      }
    }
    return await ctx.saveFile(Readable.from(trickle(), { objectMode: false }), { name: 'slow.bin' });
  },
});

/** Returns a text that is so long that the whole result has `bytes` bytes of JSON. */
export const large = defineTask({
  name: 'files.large-result',
  input: z.strictObject({ ...journalled, bytes: z.int(), isolation: z.string().optional() }),
  retry: RETRY,
  run: ({ bytes }) => 'x'.repeat(bytes - 2),
});

/** Says what the file system says when a handler names a file that is not there. */
export const missing = defineTask({
  name: 'files.missing',
  input: z.strictObject(journalled),
  retry: { ...RETRY, maxAttempts: 1 },
  run: async (_input, ctx) => {
    const dir = await ctx.tempDir();
    await writeFile(join(dir, 'there'), '');
    return await ctx.saveFile(join(dir, 'not-there'), { name: 'x' });
  },
});
