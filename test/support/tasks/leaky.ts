/** Handlers whose failures hold secrets, in the ways in which libraries put them there. */
import { z } from 'zod';
import { defineTask } from '../../../shared/tasks/define-task.ts';

const input = z.object({ journal: z.string().optional(), secret: z.string() });

/** An error as clients of HTTP and of databases throw them: a URL in the text, headers, and the same again in its cause. */
function leakyError(secret: string): Error {
  const url = `postgres://app:${encodeURIComponent(secret)}@127.0.0.1:1/app`;
  const basic = `Basic ${Buffer.from(`app:${secret}`).toString('base64')}`;
  const root = Object.assign(new Error(`connect to ${url} failed`), {
    config: { url, headers: { authorization: basic, Cookie: `session=${secret}` }, password: secret },
  });
  const cause = new Error(`request with Authorization: Bearer ${secret}`, {
    cause: root,
  });
  return Object.assign(new Error(`call failed: ${url}, ${basic}`, { cause }), { options: { apiKey: secret } });
}

export const leaks = defineTask({
  name: 'leak.throw',
  input,
  retry: { maxAttempts: 1 },
  run: ({ secret }, ctx) => {
    ctx.log.warn('about to fail', { err: leakyError(secret), token: secret });
    throw leakyError(secret);
  },
});

export const crashes = defineTask({
  name: 'leak.crash',
  input,
  retry: { maxAttempts: 1 },
  run: ({ secret }) => {
    void Promise.reject(leakyError(secret)); // nobody waits for it: the process ends by it
  },
});
