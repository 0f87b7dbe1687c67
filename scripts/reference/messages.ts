/** `docs/reference/messages.md`: what services of others publish, what Warren publishes, and the topology between. */
import { MESSAGE_LIMITS, SUBMISSION_HEADERS, encodeInvitation } from '../../shared/amqp/message.ts';
import { PRIORITY, namesOf, topologyOf } from '../../shared/amqp/topology.ts';
import { REPLAY_OF_HEADER } from '../../shared/dead-letters/republish.ts';
import { code, fenced, page, table } from './markdown.ts';

const names = namesOf('warren');

const HEADERS: Readonly<Record<keyof typeof SUBMISSION_HEADERS, string>> = {
  queue: 'Name of a queue, text. Default: the queue of the type.',
  delayMs: `Number, 0 to ${MESSAGE_LIMITS.delayMs}: milliseconds from acceptance until the task may start.`,
  runAt: 'AMQP timestamp, or ISO 8601 text with an offset: not before this. Not together with the delay.',
  deadline: 'As above: a task that has not started by then expires.',
  maxAttempts: `Number, 1 to ${MESSAGE_LIMITS.maxAttempts}: runs that may fail, the first included.`,
  tags: `List of texts, or one text with commas: up to ${MESSAGE_LIMITS.tags} tags of ${MESSAGE_LIMITS.tagLength} characters.`,
  businessKey: `Text of up to ${MESSAGE_LIMITS.businessKeyLength} characters to find the task by.`,
  uniqueKey: `Text of up to ${MESSAGE_LIMITS.uniqueKeyLength} characters: of the type there is one task at a time under it.`,
  uniqueWhile: '`waiting`: held until the task starts. `unfinished` (default): until it has ended.',
  uniqueWithinMs: `Number, 1 to ${MESSAGE_LIMITS.delayMs}: held for so many milliseconds instead, whatever becomes of the task.`,
  onConflict:
    '`return` (default): the message is done with, the task that holds the key is the answer. `replace`: where that task waits, it becomes this one. `reject`: it is a dead letter, `unique-conflict`.',
  replyOutcome:
    'Boolean. True: `reply_to` is told how the task ended too, with its result. Then it must not be a queue of Warren.',
  webhookUrl: 'Text: an https URL that is called when the task has ended. Not together with the reply.',
  webhookStates: 'List of texts, or one text with commas: the ends that the webhook is told of. Default: all.',
};

const PROPERTIES = [
  ['routing key', 'The task type. Required.'],
  ['body', 'The input: a JSON object in UTF-8. Kept byte for byte.'],
  ['`content_type`', 'Absent or `application/json`.'],
  ['`content_encoding`', 'Absent, `identity` or `utf-8`: nothing compressed.'],
  ['`delivery_mode`', '2. A message that is not persistent is lost when the broker restarts.'],
  [
    '`message_id`',
    'Your own id of this message. The same id again within seven days makes no second task; with other content it is refused as `id-conflict`. Counted per `user_id`, else `app_id`, and per type. `producer.requireMessageId` refuses a publish without it.',
  ],
  ['`priority`', `${PRIORITY.lowest} to ${PRIORITY.highest}, ${PRIORITY.highest} first. Default: that of the type.`],
  ['`correlation_id`', 'Kept with the task, and sent with the reply.'],
  ['`reply_to`', 'A queue that is told what became of the message. Must not be a queue of Warren.'],
  ['`user_id`, `app_id`', 'Who publishes. RabbitMQ checks `user_id`, nobody checks `app_id`.'],
];

/** Prints the page. */
export function renderMessages(): string {
  return page('Messages', 'For whoever publishes tasks over AMQP, or looks at the broker.', [
    `Names carry the prefix of the installation (\`prefix\`, default \`warren\`); it is \`warren\` below.`,
    '## A submission',
    `Publish to the topic exchange \`${names.tasks}\`, with publisher confirms.`,
    table(['part', 'what it holds'], PROPERTIES),
    '## Headers of a submission',
    'A closed set: any other `warren-*` header is refused (`header-unknown`), so a misspelt one is never silently without ' +
      'effect. Headers with other names are kept and mean nothing. Numbers are AMQP numbers, not texts.',
    table(
      ['header', 'value'],
      (Object.keys(HEADERS) as (keyof typeof HEADERS)[]).map((key) => [code(SUBMISSION_HEADERS[key]), HEADERS[key]]),
    ),
    '## Limits',
    table(
      ['what', 'default', 'setting'],
      [
        [
          'body',
          `${MESSAGE_LIMITS.bodyBytes} bytes`,
          '`limits.messageBytes`; with a store of files `files.inputMaxBytes`',
        ],
        ['nesting of JSON', `${MESSAGE_LIMITS.depth} levels`, '`limits.depth`'],
        ['all headers together', `${MESSAGE_LIMITS.headersBytes} bytes`, '`limits.headerBytes`'],
      ],
    ),
    'Integers beyond 2^53-1, U+0000, lone surrogates and members given twice are refused: they could not come back as they went in.',
    '## The reply',
    'Sent to `reply_to`, with the `correlation_id` of the message, else its `message_id`. One of:',
    fenced(
      'json',
      [
        '{"accepted":{"id":"0193f0a0-0000-7000-8000-000000000000"}}',
        '{"accepted":{"id":"0193f0a0-0000-7000-8000-000000000000","duplicate":true}}',
        '{"refused":{"code":"input-invalid","field":"input.width","reason":"must be >= 16","faults":[…]}}',
      ].join('\n'),
    ),
    'A refused message also becomes a dead letter of the kind `refused`, with its bytes and the reason.',
    '## An invitation',
    `What lies in a work queue. It names a task and carries no input. It comes through \`${names.work}\`, and only Warren publishes there.`,
    fenced(
      'json',
      encodeInvitation({
        taskId: '0193f0a0-0000-7000-8000-000000000000',
        type: 'report.csv',
        generation: 1,
      }).toString(),
    ),
    '## A replayed message',
    `A letter that never was a task goes back with its body, properties and headers, without the broker's own headers, ` +
      `\`user_id\` and \`expiration\`. Its \`message_id\` stays; one without gets the id of the letter. The header ` +
      `\`${REPLAY_OF_HEADER}\` names the letter.`,
    '## Exchanges and queues',
    'All are durable. `warren topology apply` declares them, and so does every service at start.',
    ...topologyTables(),
  ]);
}

function topologyTables(): string[] {
  const quorum = topologyOf({ prefix: 'warren', queues: ['default'], queueType: 'quorum' });
  const classic = topologyOf({ prefix: 'warren', queues: ['default'], queueType: 'classic' });
  const argumentsOf = (of: typeof quorum, name: string): string =>
    Object.entries(of.queues.find((queue) => queue.name === name)?.arguments ?? {})
      .filter(([key]) => key !== 'x-queue-type')
      .map(([key, value]) => code(`${key}=${value}`))
      .join(' ') || 'none';
  return [
    table(
      ['exchange', 'type'],
      quorum.exchanges.map(({ name, type }) => [code(name), type]),
    ),
    table(
      ['queue', 'bound to', 'arguments, quorum (RabbitMQ 4.3 and later)', 'arguments, classic (before 4.3)'],
      quorum.queues.map(({ name }) => {
        const binding = quorum.bindings.find(({ queue }) => queue === name);
        return [
          code(name),
          binding === undefined ? '' : `${code(binding.exchange)} by ${code(binding.routingKey)}`,
          argumentsOf(quorum, name),
          argumentsOf(classic, name),
        ];
      }),
    ),
    `\`${names.queue('default')}\` stands for every work queue. \`${names.events}\` is declared and nothing is published there yet.`,
  ];
}
