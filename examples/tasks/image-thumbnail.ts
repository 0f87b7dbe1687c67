/** `image.thumbnail`: makes a smaller picture. */
import { access, rename, rm } from 'node:fs/promises';
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { RelativePath, outputPath, sourcePath } from './files.ts';

const ThumbnailInput = z.strictObject({
  /** A picture of the data set (`gimp.png`), or below `inbox/`. */
  source: RelativePath,
  /** Pixels. */
  width: z.int().min(16).max(2_000),
  /** `.png`, `.jpg` or `.webp`, below the samples' own directory. */
  output: RelativePath.regex(/\.(png|jpg|webp)$/, 'must end in .png, .jpg or .webp'),
});

/** sharp is loaded at the first picture: a worker that makes none does not pay for it. */
export const imageThumbnail = defineTask({
  name: 'image.thumbnail',
  input: ThumbnailInput,
  timeoutMs: 30_000,
  retry: { maxAttempts: 3, firstDelayMs: 200, maxDelayMs: 5_000 },
  run: async ({ source, width, output }, ctx) => {
    const { default: sharp } = await import('sharp');
    const path = sourcePath(source);
    const file = await outputPath(output);
    const draft = file.replace(/\.\w+$/, `.${ctx.taskId}-${ctx.attempt}$&`); // sharp goes by the ending
    // libvips tells a missing file from one that is no picture by errno, which another of its threads may have written since.
    await access(path).catch((cause: unknown) => {
      throw new Error(`Input file is missing: ${path}`, { cause });
    });
    try {
      const made = await sharp(path).resize({ width, withoutEnlargement: true }).toFile(draft);
      await rename(draft, file);
      return { file, width: made.width, height: made.height, bytes: made.size };
    } finally {
      await rm(draft, { force: true });
    }
  },
});
