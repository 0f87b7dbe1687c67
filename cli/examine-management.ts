/**
 * What `warren doctor` asks RabbitMQ's management API, where it is told its address: policies that change our queues, and whether
 * an autoscaler that counts messages there sees what there is to do.
 */
import { z } from 'zod';
import { toError } from '../shared/errors/to-error.ts';
import { parseAddress } from '../shared/amqp/address.ts';
import { namesOf } from '../shared/amqp/topology.ts';
import type { Config } from '../shared/config/schema.ts';
import type { CommandContext } from './context.ts';
import type { Finding } from './doctor.ts';

/** Milliseconds for one answer. */
const WITHIN_MS = 5_000;
/** What a policy may say of our queues without harm. Each other key loses, moves or takes back what nobody expects. */
const HARMLESS = new Set([
  'queue-leader-locator',
  'queue-mode',
  'queue-version',
  'target-group-size',
  'federation-upstream-set',
]);

const queueAnswer = z.looseObject({
  messages: z.number().default(0),
  messages_unacknowledged: z.number().default(0),
  policy: z.string().nullish(),
  operator_policy: z.string().nullish(),
  effective_policy_definition: z.union([z.record(z.string(), z.unknown()), z.array(z.unknown())]).nullish(),
});
type QueueAnswer = z.output<typeof queueAnswer>;

/** Findings on the queues of this names; none without an address. The address may hold user and password: it is never shown. */
export async function examineManagement(
  { io }: CommandContext,
  config: Config,
  { url, queues }: { readonly url: string | undefined; readonly queues: readonly string[] },
): Promise<readonly Finding[]> {
  if (url === undefined || url === '') return [];
  const check = 'management';
  if (!URL.canParse(url)) {
    return [{ check, status: 'fail', message: 'its address is no URL', hint: 'Like http://user:password@host:15672' }];
  }
  const names = namesOf(config.prefix);
  const { vhost } = parseAddress(config.amqp.urls[0] ?? '');
  const base = new URL(url);
  const { username, password } = base;
  base.username = '';
  base.password = '';
  const authorization = `Basic ${Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')}`;
  const answers: { readonly queue: string; readonly answer: QueueAnswer }[] = [];
  for (const queue of queues) {
    const path = `api/queues/${encodeURIComponent(vhost)}/${encodeURIComponent(names.queue(queue))}`;
    try {
      const response = await io.fetch(new URL(path, base.href.endsWith('/') ? base : `${base.href}/`), {
        headers: { authorization },
        signal: AbortSignal.timeout(WITHIN_MS),
      });
      if (!response.ok) return [refusal(check, base.host, `answers ${response.status}`)];
      answers.push({ queue, answer: queueAnswer.parse(await response.json()) });
    } catch (thrown) {
      const cause = toError(toError(thrown).cause ?? thrown);
      return [refusal(check, base.host, cause instanceof z.ZodError ? 'gives no queue' : cause.message)];
    }
  }
  const all = answers.reduce((sum, { answer }) => sum + answer.messages, 0);
  const unacked = answers.reduce((sum, { answer }) => sum + answer.messages_unacknowledged, 0);
  return [
    ...policyFindings(answers),
    {
      check,
      status: 'ok',
      message: `KEDA's rabbitmq trigger sees ${all} messages of ${answers.length} queues, ${unacked} of them unacked`,
    },
  ];
}

function refusal(check: string, host: string, what: string): Finding {
  const hint =
    'An autoscaler that asks there sees nothing either: check address, user, password and the vhost of the first AMQP URL.';
  return { check, status: 'fail', message: `${host} ${what}`, hint };
}

function policyFindings(
  answers: readonly { readonly queue: string; readonly answer: QueueAnswer }[],
): readonly Finding[] {
  const findings = answers.flatMap(({ queue, answer }): readonly Finding[] => {
    const definition = answer.effective_policy_definition ?? {};
    const harmful = Array.isArray(definition) ? [] : Object.entries(definition).filter(([key]) => !HARMLESS.has(key));
    if (harmful.length === 0) return [];
    const policy = [answer.policy, answer.operator_policy].filter((name) => (name ?? '') !== '').join(' and ');
    const what = harmful.map(([key, value]) => `${key} = ${String(value)}`).join(', ');
    const hint = 'Let no policy match queues of Warren: what it drops, moves or takes back nobody expects.';
    return [{ check: 'policies', status: 'warn', message: `${policy} sets ${what} on ${queue}`, hint }];
  });
  return findings.length > 0 ? findings : [{ check: 'policies', status: 'ok', message: 'none changes our queues' }];
}
