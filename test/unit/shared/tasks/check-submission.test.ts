import { describe, expect, test } from '@jest/globals';
import { isOwnQueue, namesOf } from '../../../../shared/amqp/topology.ts';
import { webhookRuleOf } from '../../../../shared/http/webhook-url.ts';
import { UNDECODED_HEADERS } from '../../../../shared/amqp/header-guard.ts';
import { checkHttpSubmission, checkMessage, isMiss } from '../../../../shared/tasks/check-submission.ts';
import type {
  CheckedSubmission,
  IncomingMessage,
  SubmissionLimits,
} from '../../../../shared/tasks/check-submission.ts';
import { compileInputSchema } from '../../../../shared/tasks/input-schema.ts';
import type { Submission, SubmissionFault } from '../../../../shared/tasks/submission.ts';
import type { Catalog, KnownType } from '../../../../shared/tasks/type-catalog.ts';

const LIMITS: SubmissionLimits = {
  messageBytes: 262_144,
  depth: 64,
  headerBytes: 16_384,
  requireMessageId: false,
  webhookFault: webhookRuleOf([]),
  isOwnQueue: (name) => isOwnQueue(name, namesOf('warren')),
};

const anyInput: KnownType = {
  name: 'mail.send',
  queue: 'default',
  priority: 4,
  maxAttempts: 5,
  timeoutMs: 1_000,
  isolation: 'loop',
  keepLogs: false,
  retry: undefined,
  concurrency: undefined,
  rate: undefined,
  codeVersion: '',
  announcedAt: new Date(0),
  inputSchema: undefined,
  checkInput: undefined,
};
const schema = compileInputSchema(
  JSON.stringify({
    type: 'object',
    properties: {
      user: {
        type: 'object',
        properties: { id: { type: 'integer' }, roles: { type: 'array', items: { enum: ['a', 'b'] } } },
        required: ['id'],
        additionalProperties: false,
      },
    },
    required: ['user'],
  }),
);
if (schema.kind !== 'ok') throw new Error(schema.reason);
const TYPES = new Map<string, KnownType>([
  ['mail.send', anyInput],
  ['user.add', { ...anyInput, name: 'user.add', checkInput: schema.check }],
]);
const catalog: Catalog = {
  find: (name) => TYPES.get(name),
  hasQueue: (name) => name === 'default' || name === 'high',
};

const http = (body: string | Buffer, limits = LIMITS): CheckedSubmission =>
  checkHttpSubmission(Buffer.isBuffer(body) ? body : Buffer.from(body), catalog, limits);

const amqp = (message: Partial<IncomingMessage>, limits = LIMITS): CheckedSubmission =>
  checkMessage(
    {
      body: Buffer.from('{}'),
      exchange: 'warren.tasks',
      routingKey: 'mail.send',
      properties: {},
      headers: {},
      ...message,
    },
    catalog,
    limits,
  );

function accepted(checked: CheckedSubmission): Submission {
  if (checked.kind === 'refused') throw new Error(JSON.stringify(checked.faults));
  return checked.submission;
}

function faultsOf(checked: CheckedSubmission): readonly SubmissionFault[] {
  return checked.kind === 'refused' ? checked.faults : [];
}

const codesOf = (checked: CheckedSubmission): string[] =>
  faultsOf(checked).map(({ code, field }) => `${code} ${field}`);

const envelope = (members: string): string => `{"type":"mail.send","input":{}${members}}`;
const nested = (levels: number): string => '{"a":'.repeat(levels - 1) + '{}' + '}'.repeat(levels - 1);

describe('over HTTP', () => {
  test('an accepted input is the very bytes that came', () => {
    const input = '{ "n" : 1.0e2,\n "big": 9007199254740991, "é": "\\u00e9", "__proto__": {"x": 1}, "constructor": 1 }';
    expect(accepted(http(`{"type":"mail.send","input":${input}}`)).input.toString()).toBe(input);
    expect(({} as Record<string, unknown>)['x']).toBeUndefined();
  });

  test('what is not said comes from the task type', () => {
    expect(accepted(http(envelope('')))).toEqual({
      type: 'mail.send',
      queue: 'default',
      priority: 4,
      maxAttempts: 5,
      input: Buffer.from('{}'),
    });
  });

  test('everything that can be said is taken over', () => {
    const body = envelope(
      `,"queue":"high","priority":0,"runAt":"2030-01-31T12:00:00+02:00","deadline":"2031-01-01T00:00:00Z","maxAttempts":1,"tags":["a","b","a"],"businessKey":"order 7"`,
    );
    expect(accepted(http(body))).toMatchObject({
      queue: 'high',
      priority: 0,
      runAt: new Date('2030-01-31T10:00:00Z'),
      deadline: new Date('2031-01-01T00:00:00Z'),
      maxAttempts: 1,
      tags: ['a', 'b'],
      businessKey: 'order 7',
    });
    expect(accepted(http(envelope(',"unique":{"key":"k"}'))).unique).toEqual({
      key: 'k',
      hold: { kind: 'unfinished' },
      onConflict: 'return',
    });
    expect(accepted(http(envelope(',"throttle":{"key":"k","withinMs":5}'))).unique).toEqual({
      key: 'k',
      hold: { kind: 'window', withinMs: 5 },
      onConflict: 'return',
    });
    // Delays are rows, not expirations of messages: what such a one could not hold is no limit.
    for (const delayMs of [0, 4_294_967_295, 4_294_967_296]) {
      expect(accepted(http(envelope(`,"delayMs":${delayMs}`))).delayMs).toBe(delayMs);
    }
  });

  test.each([
    ['an unknown type', '{"type":"no.such","input":{}}', ['task-type-unknown type']],
    ['__proto__ as a type', '{"type":"__proto__","input":{}}', ['task-type-unknown type']],
    ['constructor as a type', '{"type":"constructor","input":{}}', ['task-type-unknown type']],
    ['no type', '{"input":{}}', ['field-invalid type']],
    ['a type that is no text', '{"type":7,"input":{}}', ['field-invalid type']],
    ['no input', '{"type":"mail.send"}', ['input-invalid input']],
    ['null as input', '{"type":"mail.send","input":null}', ['input-invalid input']],
    ['a list as input', '{"type":"mail.send","input":[1]}', ['input-invalid input']],
    ['an unknown queue', envelope(',"queue":"toString"'), ['queue-unknown queue']],
    ['a queue that is no text', envelope(',"queue":null'), ['field-invalid queue']],
    ['priority 10', envelope(',"priority":10'), ['field-invalid priority']],
    ['priority -1', envelope(',"priority":-1'), ['field-invalid priority']],
    ['priority 255', envelope(',"priority":255'), ['field-invalid priority']],
    ['priority 256', envelope(',"priority":256'), ['field-invalid priority']],
    ['priority "5"', envelope(',"priority":"5"'), ['field-invalid priority']],
    ['priority 1.5', envelope(',"priority":1.5'), ['field-invalid priority']],
    ['priority 1e9', envelope(',"priority":1e9'), ['field-invalid priority']],
    ['priority 1e300', envelope(',"priority":1e300'), ['field-invalid priority']],
    ['priority null', envelope(',"priority":null'), ['field-invalid priority']],
    ['delay -1', envelope(',"delayMs":-1'), ['field-invalid delayMs']],
    ['delay 1e15', envelope(',"delayMs":1e15'), ['field-invalid delayMs']],
    ['delay "abc"', envelope(',"delayMs":"abc"'), ['field-invalid delayMs']],
    ['delay 1.5', envelope(',"delayMs":1.5'), ['field-invalid delayMs']],
    ['delay and instant', envelope(',"delayMs":1,"runAt":"2030-01-01T00:00:00Z"'), ['field-invalid runAt']],
    ['an instant without offset', envelope(',"runAt":"2030-01-01T00:00:00"'), ['field-invalid runAt']],
    ['30 February', envelope(',"deadline":"2030-02-30T00:00:00Z"'), ['field-invalid deadline']],
    ['the year 10000', envelope(',"deadline":"+010000-01-01T00:00:00Z"'), ['field-invalid deadline']],
    ['no attempts', envelope(',"maxAttempts":0'), ['field-invalid maxAttempts']],
    [
      '21 tags',
      envelope(`,"tags":${JSON.stringify(Array.from({ length: 21 }, (_, n) => `t${n}`))}`),
      ['field-invalid tags'],
    ],
    ['a tag that is no text', envelope(',"tags":["a",1]'), ['field-invalid tags[1]']],
    ['an empty business key', envelope(',"businessKey":""'), ['field-invalid businessKey']],
    ['unknown members', envelope(',"prio":1,"__proto__":{}'), ['field-invalid prio', 'field-invalid __proto__']],
    ['two faults', envelope(',"priority":10,"delayMs":-1'), ['field-invalid priority', 'field-invalid delayMs']],
    ['no JSON', '{"type":', ['body-invalid body']],
    ['an empty body', '', ['body-invalid body']],
    ['null', 'null', ['body-invalid body']],
    ['a number', '42', ['body-invalid body']],
    ['a list', '[]', ['body-invalid body']],
    ['two documents', '{}{}', ['body-invalid body']],
    ['a byte order mark', `\uFEFF${envelope('')}`, ['body-invalid body']],
    ['a key given twice', '{"type":"mail.send","input":{},"input":{}}', ['body-invalid input']],
    ['U+0000', '{"type":"mail.send","input":{"a":["\\u0000"]}}', ['text-invalid input.a[0]']],
    ['a lone surrogate', '{"type":"mail.send","input":{"\\ud800":1}}', ['text-invalid input']],
    ['an integer beyond 2^53', '{"type":"mail.send","input":{"n":9007199254740993}}', ['number-not-exact input.n']],
    ['-2^63', '{"type":"mail.send","input":{"n":-9223372036854775807}}', ['number-not-exact input.n']],
    ['1e400', '{"type":"mail.send","input":{"n":1e400}}', ['number-not-exact input.n']],
    ['a body too deep', `{"type":"mail.send","input":${nested(65)}}`, [`body-too-deep input${'.a'.repeat(64)}`]],
    [
      'invalid UTF-8',
      Buffer.concat([Buffer.from('{"type":"'), Buffer.from([0xff]), Buffer.from('"}')]),
      ['body-invalid body'],
    ],
  ])('%s is refused by name', (_name, body, codes) => {
    const found = codesOf(http(body));
    // A name that cannot be stored is not shown.
    expect(found.map((text) => text.replace(/^(text-invalid input)(?!\.a).*/, '$1'))).toEqual(codes);
  });

  test('a body of exactly the limit passes, one more byte does not; an input of 64 levels passes', () => {
    const pad = (bytes: number): string => {
      const empty = '{"type":"mail.send","input":{"a":""}}';
      return empty.replace('""', `"${'x'.repeat(bytes - empty.length)}"`);
    };
    expect(http(pad(262_144)).kind).toBe('ok');
    expect(codesOf(http(pad(262_145)))).toEqual(['body-too-large body']);
    expect(http(`{"type":"mail.send","input":${nested(64)}}`).kind).toBe('ok');
  });

  test('an input that its schema refuses is named down to the member', () => {
    const body = '{"type":"user.add","input":{"user":{"id":"7","roles":["a","c"],"x":1}}}';
    expect(faultsOf(http(body))).toEqual([
      { code: 'input-invalid', field: 'input.user.x', reason: 'is not allowed here' },
      { code: 'input-invalid', field: 'input.user.id', reason: 'must be integer' },
      {
        code: 'input-invalid',
        field: 'input.user.roles[1]',
        reason: 'must be equal to one of the allowed values: ["a","b"]',
      },
    ]);
    expect(faultsOf(http('{"type":"user.add","input":{}}'))).toEqual([
      { code: 'input-invalid', field: 'input.user', reason: 'is required' },
    ]);
  });

  test('only what an announcement could cure is a miss', () => {
    expect(isMiss(http('{"type":"no.such","input":{}}'))).toBe(true);
    expect(isMiss(http(envelope(',"queue":"later"')))).toBe(true);
    expect(isMiss(http(envelope(',"priority":10')))).toBe(false);
    expect(isMiss(http(envelope('')))).toBe(false);
  });
});

test.each([
  [200, true],
  [201, false],
])('characters outside the basic plane count once at both doors: %i of them are %s', (length, isFine) => {
  const text = '😀'.repeat(length);
  const asked = {
    http: http(envelope(`,"businessKey":"${text}"`)).kind,
    amqp: amqp({ headers: { 'warren-business-key': text } }).kind,
  };
  const kind = isFine ? 'ok' : 'refused';
  expect(asked).toEqual({ http: kind, amqp: kind });
});

describe('over AMQP', () => {
  test('the body is the input, the routing key the type, the rest is in properties and headers', () => {
    const message = {
      body: Buffer.from(' {"a": 1} '),
      properties: { messageId: 'm1', priority: 9, correlationId: 'c', appId: 'shop', contentType: 'application/json' },
      headers: { 'warren-queue': 'high', 'warren-delay-ms': 5, 'warren-tags': ['x'], 'warren-business-key': 'k' },
    };
    expect(accepted(amqp(message))).toEqual({
      type: 'mail.send',
      queue: 'high',
      priority: 9,
      maxAttempts: 5,
      input: Buffer.from(' {"a": 1} '),
      delayMs: 5,
      tags: ['x'],
      businessKey: 'k',
      correlationId: 'c',
      external: { publisher: 'shop', messageId: 'm1', digest: expect.any(Buffer) },
    });
  });

  test('the authenticated user stands before the application that a publisher claims to be', () => {
    const properties = { messageId: 'm', userId: 'u', appId: 'a' };
    expect(accepted(amqp({ properties })).external?.publisher).toBe('u');
    expect(accepted(amqp({ properties: { messageId: 'm' } })).external?.publisher).toBe('');
    expect(accepted(amqp({ properties: { messageId: '' } })).external).toBeUndefined();
  });

  test('the digest of a message id changes with all that Warren would make of the message, and with nothing else', () => {
    const base = {
      body: Buffer.from('{"a":1}'),
      properties: { messageId: 'm', priority: 4 },
      headers: { 'warren-queue': 'high' },
    };
    const digestOf = (change: Partial<IncomingMessage>): string =>
      accepted(amqp({ ...base, ...change })).external?.digest.toString('hex') ?? '';
    expect(digestOf({ headers: { 'warren-queue': 'high', 'x-trace': 'y' } })).toBe(digestOf({}));
    expect(digestOf({ properties: { ...base.properties, timestamp: 7, replyTo: 'q' } })).toBe(digestOf({}));
    const others = [
      digestOf({ body: Buffer.from('{"a":2}') }),
      digestOf({ properties: { messageId: 'm', priority: 5 } }),
      digestOf({ headers: { 'warren-queue': 'default' } }),
      digestOf({ routingKey: 'user.add', body: Buffer.from('{"user":{"id":1}}') }),
      digestOf({}),
    ];
    expect(new Set(others).size).toBe(5);
  });

  test('what has no column is kept: foreign headers of any type, reply_to, type, timestamp', () => {
    const headers = { 'x-trace': { n: [1, true, null] }, raw: Buffer.from([0, 1]), '\0': 'nul' };
    const { origin } = accepted(amqp({ headers, properties: { replyTo: 'q', timestamp: 5 } }));
    expect(origin).toMatchObject({ exchange: 'warren.tasks', routingKey: 'mail.send' });
    expect(JSON.parse(origin?.properties ?? '')).toEqual({ replyTo: 'q', timestamp: 5 });
    expect(origin?.headers).toContain('x-trace');
    expect(origin?.headers).not.toMatch(/\\u0000/);
    expect(accepted(amqp({ properties: { messageId: 'm', appId: 'a', priority: 1 } })).origin).toBeUndefined();
    expect(accepted(amqp({ properties: { appId: 'a' } })).origin).toBeDefined();
  });

  test.each<[string, Partial<IncomingMessage>, string[]]>([
    ['an unknown type', { routingKey: 'no.such' }, ['task-type-unknown routing key']],
    ['__proto__ as a type', { routingKey: '__proto__' }, ['task-type-unknown routing key']],
    ['constructor as a type', { routingKey: 'constructor' }, ['task-type-unknown routing key']],
    ['priority 10', { properties: { priority: 10 } }, ['field-invalid priority']],
    ['priority "5"', { properties: { priority: '5' } }, ['field-invalid priority']],
    ['a delay of -1', { headers: { 'warren-delay-ms': -1 } }, ['field-invalid warren-delay-ms']],
    ['a delay of 1e15', { headers: { 'warren-delay-ms': 1e15 } }, ['field-invalid warren-delay-ms']],
    ['a delay of "abc"', { headers: { 'warren-delay-ms': 'abc' } }, ['field-invalid warren-delay-ms']],
    ['an unknown header', { headers: { 'warren-prio': 1 } }, ['header-unknown warren-prio']],
    ['an unknown queue', { headers: { 'warren-queue': 'other' } }, ['queue-unknown warren-queue']],
    ['headers too large', { headers: { a: 'x'.repeat(20_000) } }, ['headers-too-large headers']],
    [
      'pickled content',
      { properties: { contentType: 'application/x-python-serialize' } },
      ['content-type-unsupported content_type'],
    ],
    [
      'UTF-16',
      { properties: { contentType: 'application/json; charset=utf-16' } },
      ['content-type-unsupported content_type'],
    ],
    ['gzip', { properties: { contentEncoding: 'gzip' } }, ['content-type-unsupported content_encoding']],
    ['U+0000 in message_id', { properties: { messageId: 'a\0' } }, ['text-invalid message_id']],
    ['no JSON', { body: Buffer.from('hello') }, ['body-invalid body']],
    ['an empty body', { body: Buffer.alloc(0) }, ['body-invalid body']],
    ['no object', { body: Buffer.from('[1]') }, ['body-invalid body']],
    ['null', { body: Buffer.from('null') }, ['body-invalid body']],
    ['a body too deep', { body: Buffer.from(nested(65)) }, [`body-too-deep input${'.a'.repeat(64)}`]],
    ['a body too large', { body: Buffer.alloc(262_145, 0x20) }, ['body-too-large body']],
    ['an integer beyond 2^53', { body: Buffer.from('{"n":[9007199254740993]}') }, ['number-not-exact input.n[0]']],
    ['an input that its schema refuses', { routingKey: 'user.add' }, ['input-invalid input.user']],
    [
      'two faults',
      { properties: { priority: 11 }, body: Buffer.from('x') },
      ['field-invalid priority', 'body-invalid body'],
    ],
  ])('%s is refused by name', (_name, message, codes) => {
    expect(codesOf(amqp(message))).toEqual(codes);
  });

  test('a publish without message_id is refused where the configuration says so', () => {
    const limits = { ...LIMITS, requireMessageId: true };
    expect(codesOf(amqp({}, limits))).toEqual(['message-id-missing message_id']);
    expect(amqp({ properties: { messageId: 'm' } }, limits).kind).toBe('ok');
  });

  test('JSON is taken in the forms in which clients name it', () => {
    for (const contentType of [
      'application/json',
      'application/json; charset=utf-8',
      'Application/JSON;charset="UTF-8"',
      '',
    ]) {
      expect(amqp({ properties: { contentType } }).kind).toBe('ok');
    }
    expect(amqp({ properties: { contentEncoding: 'utf-8' } }).kind).toBe('ok');
  });
});

describe('input schemas', () => {
  test('a schema that refers to another document is left to the workers', () => {
    expect(compileInputSchema('{"$ref":"https://example.com/other.json"}')).toMatchObject({ kind: 'unusable' });
  });

  test('two schemas may have the same id', () => {
    const text = '{"$id":"https://example.com/a","type":"object"}';
    expect([compileInputSchema(text).kind, compileInputSchema(text).kind]).toEqual(['ok', 'ok']);
  });

  test('members that every object has are not there unless they are sent', () => {
    const compiled = compileInputSchema('{"required":["constructor","__proto__"]}');
    if (compiled.kind !== 'ok') throw new Error(compiled.reason);
    expect(compiled.check({}).map(({ field }) => field)).toEqual(['input.constructor', 'input.__proto__']);
    expect(compiled.check(JSON.parse('{"constructor":1,"__proto__":1}'))).toEqual([]);
  });

  test('a large input with a fault in each member names one of them', () => {
    const compiled = compileInputSchema('{"additionalProperties":{"type":"string"}}');
    if (compiled.kind !== 'ok') throw new Error(compiled.reason);
    const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, n) => [`k${n}`, n]));
    expect(compiled.check(many)).toEqual([{ field: 'input.k0', reason: 'must be string' }]);
    expect(compiled.check({ a: 1, b: 2 })).toHaveLength(2);
  });
});

test('a message whose headers nobody can decode is refused: one of them may have asked for something', () => {
  expect(amqp({ properties: { [UNDECODED_HEADERS]: Buffer.from('F') } })).toMatchObject({
    kind: 'refused',
    faults: [{ code: 'field-invalid', field: 'headers', reason: 'cannot be decoded' }],
  });
});

describe('who is to be told of the end', () => {
  const okOf = (checked: CheckedSubmission): Submission => {
    if (checked.kind !== 'ok') throw new Error(JSON.stringify(checked.faults));
    return checked.submission;
  };
  const faultsIn = (checked: CheckedSubmission): readonly SubmissionFault[] =>
    checked.kind === 'refused' ? checked.faults : [];
  const asked = (webhook: unknown): CheckedSubmission =>
    http(JSON.stringify({ type: 'mail.send', input: {}, webhook }));

  test('a webhook is kept with the states that it wants, each once', () => {
    expect(okOf(asked({ url: 'https://hooks.example.com/' })).callback).toEqual({
      kind: 'webhook',
      url: 'https://hooks.example.com/',
    });
    expect(okOf(asked({ url: 'https://x.example/', states: ['dead', 'expired', 'dead'] })).callback).toMatchObject({
      states: ['dead', 'expired'],
    });
    expect(okOf(http('{"type":"mail.send","input":{}}')).callback).toBeUndefined();
  });

  test.each([
    ['https://hooks.example.com/', 'webhook'],
    [{}, 'webhook.url'],
    [{ url: 'https://x.example/', states: [] }, 'webhook.states'],
    [{ url: 'https://x.example/', states: ['running'] }, 'webhook.states[0]'],
    [{ url: `https://x.example/${'x'.repeat(3_000)}` }, 'webhook.url'],
    [{ url: 'http://x.example/' }, 'webhook.url'],
    [{ url: 'https://127.0.0.1/' }, 'webhook.url'],
  ])('%j is refused at %s', (webhook, field) => {
    expect(faultsIn(asked(webhook)).map((fault) => fault.field)).toEqual([field]);
  });

  test('a publisher that asks for it is told in its queue, about what it calls the message', () => {
    const headers = { 'warren-reply-outcome': true };
    const told = (properties: Record<string, unknown>): unknown => okOf(amqp({ headers, properties })).callback;
    expect(told({ replyTo: 'mine', correlationId: 'c', messageId: 'm' })).toEqual({
      kind: 'reply',
      replyTo: 'mine',
      correlationId: 'c',
    });
    expect(told({ replyTo: 'mine', messageId: 'm' })).toMatchObject({ correlationId: 'm' });
    expect(told({ replyTo: 'mine' })).toEqual({ kind: 'reply', replyTo: 'mine' });
    expect(okOf(amqp({ properties: { replyTo: 'mine' } })).callback).toBeUndefined();
    expect(
      okOf(amqp({ properties: { replyTo: 'mine' }, headers: { 'warren-reply-outcome': false } })).callback,
    ).toBeUndefined();
  });

  test.each([
    [{ 'warren-reply-outcome': true }, {}, 'reply_to'],
    [{ 'warren-reply-outcome': true }, { replyTo: '' }, 'reply_to'],
    [{ 'warren-reply-outcome': true }, { replyTo: 'x'.repeat(256) }, 'reply_to'],
    [{ 'warren-reply-outcome': true }, { replyTo: 'a\u0000b' }, 'reply_to'],
    [{ 'warren-reply-outcome': 'yes' }, { replyTo: 'mine' }, 'warren-reply-outcome'],
    [{ 'warren-reply-outcome': true }, { replyTo: 'warren.ingress' }, 'reply_to'],
    [{ 'warren-reply-outcome': true }, { replyTo: 'warren.q.default' }, 'reply_to'],
    [{ 'warren-webhook-url': 7 }, {}, 'warren-webhook-url'],
    [{ 'warren-webhook-url': 'https://10.0.0.1/' }, {}, 'warren-webhook-url'],
    [{ 'warren-webhook-url': 'https://x.example/', 'warren-webhook-states': 'running' }, {}, 'warren-webhook-states'],
    [{ 'warren-webhook-url': 'https://x.example/', 'warren-webhook-states': [1] }, {}, 'warren-webhook-states'],
    [{ 'warren-webhook-states': ['dead'] }, {}, 'warren-webhook-url'],
    [
      { 'warren-webhook-url': 'https://x.example/', 'warren-reply-outcome': true },
      { replyTo: 'mine' },
      'warren-webhook-url',
    ],
  ])('headers %j with properties %j are refused at %s', (headers, properties, field) => {
    expect(faultsIn(amqp({ headers, properties })).map((fault) => fault.field)).toEqual([field]);
  });

  test('headers ask for a webhook as a body over HTTP does', () => {
    const url = 'https://hooks.example.com/warren';
    const over = (headers: Record<string, unknown>): unknown => okOf(amqp({ headers })).callback;
    expect(over({ 'warren-webhook-url': url })).toEqual({ kind: 'webhook', url });
    const both = { kind: 'webhook', url, states: ['dead', 'expired'] };
    expect(over({ 'warren-webhook-url': url, 'warren-webhook-states': 'dead, expired' })).toEqual(both);
    expect(over({ 'warren-webhook-url': url, 'warren-webhook-states': ['dead', 'expired', 'dead'] })).toEqual(both);
    expect(over({ 'warren-webhook-url': url, 'warren-reply-outcome': false })).toEqual({ kind: 'webhook', url });
  });

  test('a task that would have anything signed is refused at both doors', () => {
    TYPES.set('warren.webhook', { ...anyInput, name: 'warren.webhook' });
    expect(faultsIn(http('{"type":"warren.webhook","input":{}}'))).toMatchObject([{ field: 'type' }]);
    expect(faultsIn(amqp({ routingKey: 'warren.webhook' }))).toMatchObject([{ field: 'routing key' }]);
    TYPES.delete('warren.webhook');
  });
});
