/** The types of the coupon flow in `examples/flows/coupon.json`: check the user, create the coupon, count. `notify.webhook` tells them. */
import { readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { NonRetryable } from '../../shared/tasks/handler-errors.ts';
import { RelativePath, outputPath } from './files.ts';

const User = z.int().min(1);
/** The shop of the samples has so many customers. */
const CUSTOMERS = 10_000;
const IS_COUPON = /^user-\d+\.json$/;

/** Finds out whether there is such a user, and what coupon they get. */
export const userCheck = defineTask({
  name: 'user.check',
  input: z.strictObject({ user: User }),
  run: ({ user }) => {
    if (user > CUSTOMERS) throw new NonRetryable(`there is no user ${user}`);
    return { user, percent: user % 10 === 0 ? 20 : 10 };
  },
});

/** Writes the coupon. Its file is named after the user, so that a second attempt writes the same one. */
export const couponCreate = defineTask({
  name: 'coupon.create',
  input: z.strictObject({ user: User, percent: z.int().min(1).max(100), folder: RelativePath }),
  retry: { maxAttempts: 3, firstDelayMs: 200 },
  run: async ({ user, percent, folder }, ctx) => {
    const coupon = { code: `${ctx.taskId.slice(-8)}-${percent}`, user, percent };
    await writeFile(await outputPath(`${folder}/user-${user}.json`), JSON.stringify(coupon), { mode: 0o600 });
    return coupon;
  },
});

/** Counts the coupons of a folder. */
export const couponCount = defineTask({
  name: 'coupon.count',
  input: z.strictObject({ folder: RelativePath }),
  run: async ({ folder }) => ({ coupons: (await couponFiles(folder)).length }),
});

/** Paths of the coupons of a folder. */
export async function couponFiles(folder: string): Promise<readonly string[]> {
  const directory = dirname(await outputPath(`${folder}/any`));
  return (await readdir(directory)).filter((name) => IS_COUPON.test(name)).map((name) => join(directory, name));
}
