/** Alerts as receivers get them: the form and the signature of each kind, and what their answers mean for the task. */
import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { createAlertType } from '../../../../../services/worker/builtin/alert.ts';
import { withoutSecrets } from '../../../../../services/worker/builtin/alert-secrets.ts';
import type { AlertChannel, WebhookChannel } from '../../../../../shared/config/alert-channels.ts';
import { describeAlert } from '../../../../../shared/dead-letters/alert.ts';
import type { Alert } from '../../../../../shared/dead-letters/alert.ts';
import type { Outcome } from '../../../../../shared/tasks/outcome.ts';
import { systemClock } from '../../../../../shared/time/clock.ts';
import { anAlert, openMailServer, openReceiver } from '../../../../support/alerts.ts';
import type { MailServer, Receiver } from '../../../../support/alerts.ts';
import { openRunner } from '../../../../support/runner.ts';
import type { TestRunner } from '../../../../support/runner.ts';

const STANDARD_SECRET = `whsec_${Buffer.from('a secret of thirty-two bytes, yes').toString('base64')}`;
const DINGTALK_SECRET = 'SEC0123456789abcdef';
const HOOK = '/services/T0123ABCD/B0456EFGH/geheim-geheim-geheim';

let receiver: Receiver;
let mail: MailServer;
let runner: TestRunner;
beforeAll(async () => {
  mail = await openMailServer();
  runner = await openRunner();
});
beforeEach(async () => {
  await receiver?.[Symbol.asyncDispose]();
  receiver = await openReceiver();
  mail.seen.length = 0;
  mail.refuseWith = undefined;
});
afterAll(async () => {
  await runner[Symbol.asyncDispose]();
  await receiver[Symbol.asyncDispose]();
  await mail[Symbol.asyncDispose]();
});

const webhook = (kind: WebhookChannel['kind'], more: Partial<WebhookChannel> = {}): WebhookChannel => ({
  name: 'ops',
  kind,
  url: `${receiver.url}${HOOK}`,
  ...more,
});
const email = (more: Partial<Extract<AlertChannel, { kind: 'email' }>> = {}): AlertChannel => ({
  name: 'ops',
  kind: 'email',
  url: `smtp://ops:correct-horse-battery@127.0.0.1:${mail.port}`,
  from: 'warren@example.com',
  to: ['a@example.com', 'b@example.com'],
  ...more,
});

async function deliver(channel: AlertChannel, alert: Alert = anAlert(), deliverWithinMs = 5_000): Promise<Outcome> {
  return await runner.run(createAlertType(systemClock, { channels: [channel], deliverWithinMs }), {
    channel: 'ops',
    alert,
  });
}

describe('a standard webhook', () => {
  test('is signed so that a receiver can verify it, and carries the whole alert', async () => {
    const alert = anAlert();
    const channel = webhook('standard', { secret: STANDARD_SECRET });
    expect(await deliver(channel, alert)).toMatchObject({ kind: 'succeeded' });
    const [request] = receiver.seen;
    if (request === undefined) throw new Error('nothing came');
    const { method, path, headers, body } = request;
    expect([method, path, headers['content-type']]).toEqual(['POST', HOOK, 'application/json; charset=utf-8']);
    const verified = new Webhook(STANDARD_SECRET).verify(body, headers as Record<string, string>);
    expect(verified).toMatchObject({
      type: 'warren.alert.new_group',
      timestamp: alert.foundAt,
      data: { title: 'Warren: new failure of report.csv: DiskFull: no space on <path>', ...alert },
    });
    expect(headers['webhook-id']).toBe(alert.id);
    expect(() => new Webhook(STANDARD_SECRET).verify(`${body} `, headers as Record<string, string>)).toThrow(
      'No matching signature found',
    );
    const another = `whsec_${Buffer.from('another secret of 32 bytes, yes!').toString('base64')}`;
    expect(() => new Webhook(another).verify(body, headers as Record<string, string>)).toThrow(
      'No matching signature found',
    );
  });

  test('has the same id when it is delivered again', async () => {
    const alert = anAlert();
    const channel = webhook('standard', { secret: STANDARD_SECRET });
    await deliver(channel, alert);
    await deliver(channel, alert);
    expect(receiver.seen.map(({ headers }) => headers['webhook-id'])).toEqual([alert.id, alert.id]);
  });
});

describe('Slack', () => {
  test('gets a text, a header and the facts, with nothing that it would read as markup', async () => {
    const { group } = anAlert();
    if (group === null) throw new Error('no group');
    const hostile = anAlert({ group: { ...group, errorMessage: '<!channel> & <https://evil.example|click>' } });
    expect(await deliver(webhook('slack'), hostile)).toMatchObject({ kind: 'succeeded' });
    const sent = JSON.parse(receiver.seen[0]?.body ?? '') as {
      text: string;
      blocks: { type: string; text: { type: string; text: string } }[];
    };
    expect(sent.text).toBe(
      'Warren: new failure of report.csv: DiskFull: &lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;',
    );
    expect(sent.blocks.map(({ type, text }) => [type, text.type])).toEqual([
      ['header', 'plain_text'],
      ['section', 'mrkdwn'],
    ]);
    expect(sent.blocks[0]?.text.text.length).toBeLessThanOrEqual(150);
    expect(sent.blocks[1]?.text.text).toContain('*letters*  140, 138 of them open');
    expect(sent.blocks[1]?.text.text).not.toMatch(/<[!h]/);
  });
});

describe('DingTalk', () => {
  test('gets Markdown, and time and signature behind the address as its robots check them', async () => {
    const channel = webhook('dingtalk', {
      url: `${receiver.url}/robot/send?access_token=geheim`,
      secret: DINGTALK_SECRET,
    });
    expect(await deliver(channel)).toMatchObject({ kind: 'succeeded' });
    const { searchParams } = new URL(receiver.seen[0]?.path ?? '', receiver.url);
    const timestamp = searchParams.get('timestamp') ?? '';
    expect(Math.abs(Number(timestamp) - systemClock.now().getTime())).toBeLessThan(60_000);
    expect(searchParams.get('access_token')).toBe('geheim');
    expect(searchParams.get('sign')).toBe(
      createHmac('sha256', DINGTALK_SECRET).update(`${timestamp}\n${DINGTALK_SECRET}`).digest('base64'),
    );
    expect(JSON.parse(receiver.seen[0]?.body ?? '')).toMatchObject({
      msgtype: 'markdown',
      markdown: {
        title: 'Warren: new failure of report.csv: DiskFull: no space on <path>',
        text: expect.stringContaining('- **error**: DiskFull: no space on ＜path＞'),
      },
    });
  });

  test('without a secret gets no signature', async () => {
    await deliver(webhook('dingtalk', { url: `${receiver.url}/robot/send?access_token=geheim` }));
    expect(receiver.seen[0]?.path).toBe('/robot/send?access_token=geheim');
  });
});

describe('WeCom', () => {
  test('gets Markdown of at most 4 096 bytes', async () => {
    const { group } = anAlert();
    if (group === null) throw new Error('no group');
    const long = anAlert({
      group: { ...group, errorMessage: '长'.repeat(600), queues: Array(20).fill('队'.repeat(300)) as string[] },
    });
    expect(
      await deliver(webhook('wecom', { url: `${receiver.url}/cgi-bin/webhook/send?key=geheim` }), long),
    ).toMatchObject({
      kind: 'succeeded',
    });
    const sent = JSON.parse(receiver.seen[0]?.body ?? '') as { msgtype: string; markdown: { content: string } };
    expect(sent.msgtype).toBe('markdown');
    expect(sent.markdown.content).toContain('>letters: 140, 138 of them open');
    expect(Buffer.byteLength(sent.markdown.content)).toBeLessThanOrEqual(4_096);
  });
});

describe('e-mail', () => {
  test('comes from and to whom it should, logged in, with a Message-ID that stays the same', async () => {
    const alert = anAlert();
    expect(await deliver(email(), alert)).toMatchObject({ kind: 'succeeded' });
    await deliver(email(), alert);
    expect(mail.seen).toMatchObject([
      { from: 'warren@example.com', to: ['a@example.com', 'b@example.com'], user: 'ops' },
      { from: 'warren@example.com' },
    ]);
    const source = mail.seen[0]?.source ?? '';
    expect(source).toMatch(/^Subject: Warren: new failure of report\.csv: DiskFull/m);
    expect(source).toMatch(/^letters +140, 138 of them open$/m);
    expect(source).toMatch(/^Auto-Submitted: auto-generated$/im);
    const ids = mail.seen.map(({ source: each }) => /^Message-ID: (.*)$/im.exec(each)?.[1]);
    expect(ids).toEqual([`<${alert.id}.ops@warren.invalid>`, `<${alert.id}.ops@warren.invalid>`]);
  });

  test('gets no header from what died', async () => {
    const { group } = anAlert();
    if (group === null) throw new Error('no group');
    const hostile = anAlert({ group: { ...group, errorMessage: 'x\r\nBcc: evil@example.com\r\n\r\nhello' } });
    await deliver(email(), hostile);
    expect(mail.seen[0]?.to).toEqual(['a@example.com', 'b@example.com']);
    expect(mail.seen[0]?.source).not.toMatch(/^Bcc:/im);
  });

  test.each([
    [451, true],
    [554, false],
  ])('that is refused with %i is tried again: %s', async (code, retryable) => {
    mail.refuseWith = code;
    expect(await deliver(email())).toMatchObject({ kind: 'failed', retryable });
  });

  test('with a wrong password is not tried again, and the error does not hold it', async () => {
    const outcome = await deliver(email({ url: `smtp://ops:geheim-geheim@127.0.0.1:${mail.port}` }));
    expect(outcome).toMatchObject({ kind: 'failed', retryable: false });
    expect(JSON.stringify([outcome, runner.lines])).not.toContain('geheim');
    expect(JSON.stringify([outcome, runner.lines])).not.toContain(
      Buffer.from('\0ops\0geheim-geheim').toString('base64'),
    );
  });

  test('says no password in the clear to another machine, whatever its server offers', async () => {
    const passwords: unknown[] = [];
    await using plain = await openMailServer({
      onAuth: ({ password }, _session, done) => {
        passwords.push(password);
        done(null, { user: 'ops' });
      },
    });
    // It reaches this machine, and is not known to be it.
    const outcome = await deliver(email({ url: `smtp://ops:correct-horse-battery@0.0.0.0:${plain.port}` }));
    expect({ outcome, passwords, seen: plain.seen }).toMatchObject({
      outcome: { kind: 'failed' },
      passwords: [],
      seen: [],
    });
  });

  test('to a server that does not answer is given up in time', async () => {
    await using silent = await openMailServer({ onConnect: () => undefined });
    const outcome = await deliver(email({ url: `smtp://127.0.0.1:${silent.port}` }), anAlert(), 200);
    expect(outcome).toMatchObject({ kind: 'failed', retryable: true });
  });
});

describe('an answer', () => {
  test.each([
    [500, true],
    [503, true],
    [408, true],
    [429, true],
    [400, false],
    [403, false],
    [404, false],
    [410, false],
  ])('of %i makes the task try again: %s', async (status, retryable) => {
    receiver.answer = (response) => response.writeHead(status).end('no');
    expect(await deliver(webhook('slack'))).toMatchObject({
      kind: 'failed',
      retryable,
      error: { message: `channel ops: answered ${status}: no` },
    });
  });

  test('may say when to try again', async () => {
    receiver.answer = (response) => response.writeHead(429, { 'retry-after': '120' }).end();
    expect(await deliver(webhook('slack'))).toMatchObject({ kind: 'failed', retryable: true, delayMs: 120_000 });
  });

  test.each([
    ['dingtalk', '{"errcode":310000,"errmsg":"sign not match"}', false],
    ['dingtalk', '{"errcode":130101,"errmsg":"send too fast"}', true],
    ['wecom', '{"errcode":93000,"errmsg":"invalid webhook url"}', false],
    ['wecom', '{"errcode":45009,"errmsg":"api freq out of limit"}', true],
    ['wecom', '<html>a proxy</html>', true],
  ] as const)('of 200 from %s with %s is no success; tried again: %s', async (kind, body, retryable) => {
    receiver.answer = (response) => response.end(body);
    expect(await deliver(webhook(kind))).toMatchObject({ kind: 'failed', retryable });
  });

  test('that redirects is not followed', async () => {
    await using elsewhere = await openReceiver();
    receiver.answer = (response) => response.writeHead(307, { location: `${elsewhere.url}/geheim` }).end();
    const outcome = await deliver(webhook('standard', { secret: STANDARD_SECRET }));
    expect(outcome).toMatchObject({ kind: 'failed', retryable: false });
    expect(elsewhere.seen).toEqual([]);
  });

  test('that never comes, or never ends, is given up in time', async () => {
    receiver.answer = () => undefined;
    expect(await deliver(webhook('slack'), anAlert(), 100)).toMatchObject({
      kind: 'failed',
      retryable: true,
      error: { message: 'channel ops: no answer within 100 ms' },
    });
    receiver.answer = (response) => void response.write('and');
    expect(await deliver(webhook('slack'), anAlert(), 100)).toMatchObject({ kind: 'failed', retryable: true });
  });

  test('of nobody is tried again', async () => {
    const channel = webhook('slack');
    await receiver[Symbol.asyncDispose]();
    const outcome = await deliver(channel);
    receiver = await openReceiver();
    expect(outcome).toMatchObject({
      kind: 'failed',
      retryable: true,
      error: { message: 'channel ops: cannot be reached (ECONNREFUSED)' },
    });
  });
});

describe('nothing secret', () => {
  test.each(['standard', 'slack', 'dingtalk', 'wecom'] as const)(
    'of %s stands in an error, though the receiver says it back',
    async (kind) => {
      const channel = webhook(kind, {
        url: `${receiver.url}${HOOK}?access_token=geheim-token&key=geheim-key`,
        ...(kind === 'standard' ? { secret: STANDARD_SECRET } : {}),
        ...(kind === 'dingtalk' ? { secret: 'SECgeheim0123' } : {}),
      });
      receiver.answer = (response, { path }) =>
        response.writeHead(404).end(`Cannot POST ${path} ${channel.url} ${channel.secret ?? ''}`);
      const outcome = await deliver(channel);
      expect(outcome).toMatchObject({ kind: 'failed', error: { message: expect.stringContaining('answered 404') } });
      const shown = JSON.stringify([outcome, runner.lines]);
      expect(shown).not.toMatch(/geheim|B0456EFGH/);
      expect(shown).not.toContain(STANDARD_SECRET);
    },
  );

  test('is left when a path step is a word', () => {
    const channel = webhook('slack', { url: 'http://h.example/hooks/v1/abcdefgh-0123' });
    expect(withoutSecrets('no hooks at /hooks/v1/abcdefgh-0123\nv1', channel)).toBe('no hooks at *** v1');
  });
});

test('a channel that this worker does not know is tried again: another one may', async () => {
  const type = createAlertType(systemClock);
  expect(await runner.run(type, { channel: 'ops', alert: anAlert() })).toMatchObject({
    kind: 'failed',
    retryable: true,
    error: { message: 'no channel ops in alerts.channels of this worker' },
  });
});

test('what a newer handler adds to an alert does no harm', async () => {
  const newer = { ...anAlert(), mood: 'bad' };
  expect(await deliver(webhook('standard', { secret: STANDARD_SECRET }), newer)).toMatchObject({ kind: 'succeeded' });
});

describe('in words, an alert', () => {
  test('says how fast a group grows', () => {
    const growing = anAlert({ kind: 'growing_group', growth: { letters: 1_200, windowMs: 3_600_000 } });
    expect(describeAlert(growing).title).toBe(
      'Warren: 1200 letters in 1 h of report.csv: DiskFull: no space on <path>',
    );
  });

  test('names the rule that makes a group of several types', () => {
    const { group } = anAlert();
    if (group === null) throw new Error('no group');
    const ruled = anAlert({ group: { ...group, type: null, rule: 'mail is down' } });
    expect(describeAlert(ruled).title).toBe('Warren: new failure of mail is down: DiskFull: no space on <path>');
  });

  test('says how long a letter has been open', () => {
    const oldest = anAlert({
      kind: 'oldest_letter',
      group: null,
      openLetters: 7,
      oldest: { id: anAlert().id, type: 'mail.send', reason: 'timeout', diedAt: '2026-04-30T08:00:00.000Z' },
    });
    expect(describeAlert(oldest).title).toBe('Warren: a dead letter has been open for 26 h');
    expect(describeAlert(oldest).facts).toEqual(expect.arrayContaining([['open letters', '7']]));
  });
});
