/** The type of the nightly settlement in `examples/schedules/settlement.json`: counts the coupons that `coupons.ts` wrote, and writes down the sum of a day. */
import { readFile, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { couponFiles } from './coupons.ts';
import { RelativePath, outputPath } from './files.ts';

const Coupon = z.looseObject({ user: z.int(), percent: z.int() });

/** Settles one day. Its file is named after the day, so that a day that is settled twice is written once. */
export const settlementDay = defineTask({
  name: 'settlement.day',
  input: z.strictObject({ day: z.iso.date(), folder: RelativePath }),
  retry: { maxAttempts: 3, firstDelayMs: 200 },
  run: async ({ day, folder }, ctx) => {
    const files = await couponFiles(folder);
    let percent = 0;
    for (const [index, file] of files.entries()) {
      ctx.signal.throwIfAborted();
      percent += Coupon.parse(JSON.parse(await readFile(file, 'utf8'))).percent;
      ctx.progress((index + 1) / files.length, 'adding up');
    }
    const settled = { day, coupons: files.length, percent };
    await writeFile(await outputPath(`${folder}/settlement-${day}.json`), `${JSON.stringify(settled)}\n`, {
      mode: 0o600,
    });
    return settled;
  },
});
