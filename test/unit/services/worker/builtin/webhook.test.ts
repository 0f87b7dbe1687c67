/** The built-in type that tells a receiver how a task ended. */
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { lookupPublic } from '../../../../../services/worker/builtin/guarded-post.ts';
import { createWebhookType, DEFAULT_WEBHOOK } from '../../../../../services/worker/builtin/webhook.ts';
import type { WebhookOptions } from '../../../../../services/worker/builtin/webhook.ts';
import type { Outcome } from '../../../../../shared/tasks/outcome.ts';
import { newId } from '../../../../../shared/tasks/ids.ts';
import { systemClock } from '../../../../../shared/time/clock.ts';
import { openReceiver } from '../../../../support/alerts.ts';
import type { Receiver } from '../../../../support/alerts.ts';
import { openRunner } from '../../../../support/runner.ts';

const OLD = `whsec_${Buffer.alloc(24, 1).toString('base64')}`;
const NEW = `whsec_${Buffer.alloc(24, 2).toString('base64')}`;

let receiver: Receiver;
beforeAll(async () => {
  receiver = await openReceiver();
});
afterAll(async () => await receiver[Symbol.asyncDispose]());
beforeEach(() => {
  receiver.seen.length = 0;
  receiver.answer = (response) => response.end('ok');
});

const local = (): string => new URL(receiver.url).host;

async function call(options: Partial<WebhookOptions> = {}, url = `${receiver.url}/hooks/tasks`): Promise<Outcome> {
  await using open = await openRunner();
  const type = createWebhookType(systemClock, {
    ...DEFAULT_WEBHOOK,
    secrets: [NEW],
    allowHosts: [local()],
    ...options,
  });
  const input = Buffer.from(JSON.stringify({ url, id: 'task-1-succeeded', body: '{"n":1.0}' }));
  return await open.runner.run({ type, taskId: newId(), attempt: 1, claimId: newId(), input });
}

test('sends the text as it is, signed with each secret so that receivers can change over', async () => {
  expect(await call({ secrets: [NEW, OLD] })).toMatchObject({ kind: 'succeeded' });
  const [request] = receiver.seen;
  expect(request).toMatchObject({ method: 'POST', path: '/hooks/tasks', body: '{"n":1.0}' });
  expect(request?.headers['webhook-id']).toBe('task-1-succeeded');
  const headers = request?.headers as Record<string, string>;
  for (const secret of [OLD, NEW]) expect(new Webhook(secret).verify('{"n":1.0}', headers)).toEqual({ n: 1 });
  const other = `whsec_${Buffer.alloc(24, 3).toString('base64')}`;
  expect(() => new Webhook(other).verify('{"n":1.0}', headers)).toThrow('No matching signature');
});

test.each([
  [503, true],
  [429, true],
  [408, true],
  [404, false],
  [410, false],
  [302, false],
])('an answer of %i fails the attempt; worth trying again: %s', async (status, retryable) => {
  receiver.answer = (response) => {
    response.writeHead(status, { location: 'http://127.0.0.1:1/' });
    response.end(`refused /hooks/tasks`);
  };
  const outcome = await call();
  expect(outcome).toMatchObject({ kind: 'failed', retryable });
  expect(receiver.seen).toHaveLength(1);
  expect(JSON.stringify(outcome)).not.toContain('/hooks/tasks');
});

test('a private address is refused for good unless it is allowed, and nothing is sent', async () => {
  const refused = await call({ allowHosts: [] });
  expect(refused).toMatchObject({ kind: 'failed', retryable: false, error: { code: 'host-not-allowed' } });
  expect(receiver.seen).toEqual([]);
});

test('a name that leads to a private address is refused when it is called', async () => {
  for (const all of [true, false]) {
    const [error, address] = await new Promise<readonly unknown[]>((resolve) => {
      lookupPublic('localhost', { all }, (...answer) => resolve(answer));
    });
    expect(error).toMatchObject({ code: 'host-not-allowed' });
    expect(address).toEqual([]);
  }
});

test('a worker without a secret leaves the call to one that has it', async () => {
  expect(await call({ secrets: [] })).toMatchObject({
    kind: 'failed',
    retryable: true,
    error: { message: 'no webhooks.secrets in this worker' },
  });
});

test('a receiver that does not answer is given up, and tried again later', async () => {
  receiver.answer = () => undefined;
  expect(await call({ deliverWithinMs: 50 })).toMatchObject({ kind: 'failed', retryable: true });
});
