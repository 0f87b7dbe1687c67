/** Alerts over HTTP: what each kind of receiver wants to be sent, and what its answers mean. */
import { createHmac } from 'node:crypto';
import type { WebhookChannel } from '../../../shared/config/alert-channels.ts';
import { describeAlert } from '../../../shared/dead-letters/alert.ts';
import type { Alert, AlertText } from '../../../shared/dead-letters/alert.ts';
import { codeOf, toError } from '../../../shared/errors/to-error.ts';
import { NonRetryable } from '../../../shared/tasks/handler-errors.ts';
import type { Clock } from '../../../shared/time/clock.ts';
import { withoutSecrets } from './alert-secrets.ts';
import { judgeAnswer, MOST_ANSWER_BYTES, standardHeaders } from './webhook-answer.ts';

/** What a delivery is made with. */
export interface WebhookDeps {
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** One request, before it is sent. */
interface Call {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Of DingTalk: too many a minute. Of WeCom: too many a minute. -1 of both: busy. */
const PASSING_CODES: ReadonlySet<number> = new Set([-1, 130_101, 130_102, 45_009, 45_033]);

/** Sends an alert. Throws NonRetryable, RetryAfter, or a plain error for what may pass; none of them holds a secret. */
export async function deliverByWebhook(channel: WebhookChannel, alert: Alert, deps: WebhookDeps): Promise<void> {
  const call = callOf(channel, alert, deps.clock.now());
  let response: Response;
  let said: string;
  try {
    response = await fetch(call.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json; charset=utf-8', 'user-agent': 'warren', ...call.headers },
      body: call.body,
      redirect: 'manual', // a redirect would carry the alert to where nobody configured it to go
      signal: deps.signal,
    });
    said = await readStart(response);
  } catch (thrown) {
    deps.signal.throwIfAborted();
    // What fetch throws names the address; the code says what is wrong with it.
    const { cause } = toError(thrown);
    throw new Error(`channel ${channel.name}: cannot be reached (${codeOf(cause) ?? codeOf(thrown) ?? 'no answer'})`);
  }
  judge(channel, response, said, deps.clock);
}

function judge(channel: WebhookChannel, { status, headers }: Response, said: string, clock: Clock): void {
  const who = `channel ${channel.name}`;
  const shown = withoutSecrets(said, channel);
  judgeAnswer(who, { status, retryAfter: headers.get('retry-after'), said: shown }, clock);
  if (channel.kind !== 'dingtalk' && channel.kind !== 'wecom') return;
  // Both answer 200 to everything; what became of it stands in the body.
  const code = /"errcode"\s*:\s*(-?\d{1,9})\b/.exec(said)?.[1];
  if (code === '0') return;
  const message = `${who}: answered ${status}: ${shown}`;
  if (code === undefined || PASSING_CODES.has(Number(code))) throw new Error(message);
  throw new NonRetryable(message);
}

/** The request for an alert, at an instant that signatures are over. */
function callOf(channel: WebhookChannel, alert: Alert, now: Date): Call {
  const text = describeAlert(alert);
  switch (channel.kind) {
    case 'standard':
      return standardCall(channel, alert, text, now);
    case 'slack':
      return { url: channel.url, headers: {}, body: JSON.stringify(slackBody(text)) };
    case 'dingtalk':
      return { url: signedForDingTalk(channel, now), headers: {}, body: JSON.stringify(dingTalkBody(text)) };
    case 'wecom':
      return { url: channel.url, headers: {}, body: JSON.stringify(weComBody(text)) };
  }
}

/** The id is the alert's: a receiver that has seen it has seen this alert, however often it is delivered. */
function standardCall({ url, secret = '' }: WebhookChannel, alert: Alert, { title }: AlertText, now: Date): Call {
  const body = JSON.stringify({
    type: `warren.alert.${alert.kind}`,
    timestamp: alert.foundAt,
    data: { title, ...alert },
  });
  return {
    url,
    headers: standardHeaders([secret], alert.id, now, body),
    body,
  };
}

/** `text` is what a notification shows; Slack reads three characters as markup: docs.slack.dev/messaging/formatting-message-text. */
function slackBody({ title, facts }: AlertText): object {
  const escape = (value: string): string =>
    value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
  const lines = facts.map(([name, value]) => `*${name}*  ${escape(value)}`).join('\n');
  return {
    text: escape(title),
    blocks: [
      { type: 'header', text: { type: 'plain_text', text: title.slice(0, 150), emoji: false } },
      // A section holds 3 000 characters, and escaping makes a text up to five times as long.
      { type: 'section', text: { type: 'mrkdwn', text: cut(lines, 2_900) } },
    ],
  };
}

/** The time in milliseconds and the secret, signed with the secret, go behind the address. */
function signedForDingTalk({ url, secret }: WebhookChannel, now: Date): string {
  if (secret === undefined) return url;
  const timestamp = String(now.getTime());
  const signed = new URL(url);
  signed.searchParams.set('timestamp', timestamp);
  signed.searchParams.set('sign', createHmac('sha256', secret).update(`${timestamp}\n${secret}`).digest('base64'));
  return signed.href;
}

function dingTalkBody({ title, facts }: AlertText): object {
  const lines = facts.map(([name, value]) => `- **${name}**: ${defuse(value)}`);
  return {
    msgtype: 'markdown',
    markdown: { title, text: cut(`### ${defuse(title)}\n\n${lines.join('\n')}`, 4_900) },
  };
}

/** At most 4 096 bytes. */
function weComBody({ title, facts }: AlertText): object {
  const lines = facts.map(([name, value]) => `>${name}: ${defuse(value)}`);
  return {
    msgtype: 'markdown',
    markdown: { content: cut(`**${defuse(title)}**\n${lines.join('\n')}`, 4_096) },
  };
}

/**
 * What died may hold anything: no link, image, tag or mention of it may come alive. Both show only a part of Markdown and each
 * another one, escapes not among it, so that what begins such a thing is replaced and not escaped.
 */
function defuse(value: string): string {
  return value.replaceAll('<', '＜').replaceAll('>', '＞').replaceAll('](', '] (').replaceAll('`', "'");
}

/** At most so many bytes of UTF-8, ending with a whole line. */
function cut(text: string, mostBytes: number): string {
  if (Buffer.byteLength(text) <= mostBytes) return text;
  const lines = text.split('\n');
  while (lines.length > 1 && Buffer.byteLength(lines.join('\n')) > mostBytes) lines.pop();
  return lines.join('\n');
}

async function readStart(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  if (response.body !== null) {
    for await (const chunk of response.body as ReadableStream<Uint8Array>) {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= MOST_ANSWER_BYTES) break; // leaving the loop cancels the stream
    }
  }
  return Buffer.concat(chunks).subarray(0, MOST_ANSWER_BYTES).toString('utf8');
}
