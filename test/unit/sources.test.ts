/** Rules that no linter knows, held by reading the sources. */
import { expect, test } from '@jest/globals';
import { CATALOGUE } from '../../shared/errors/catalogue.ts';
import { METRICS } from '../../shared/observability/metrics-declared.ts';
import { findStatementFiles } from '../support/product-statements.ts';
import { listFiles, listSources, readSource, withoutComments } from '../support/source-files.ts';

const product = listSources('shared', 'services', 'cli');
const statements = (await findStatementFiles()).flatMap((file) => file.statements);
const own = 'test/unit/sources.test.ts';
const tests = listSources('test').filter((path) => path.endsWith('.test.ts') && path !== own);
const everything = listFiles('.').filter((path) => !/\.(png|jpg|webp)$/.test(path) && path !== 'package-lock.json');

interface LogCall {
  readonly file: string;
  /** The first argument as written. */
  readonly message: string;
}

const logCalls: readonly LogCall[] = product.flatMap((file) =>
  [
    ...withoutComments(readSource(file)).matchAll(
      /\blog\??(?:\.(?:error|warn|info|debug)|\[\w+\])\(\s*('[^'\n]*'|[^,)\n]+)/g,
    ),
  ].map(([, message = '']) => ({ file, message })),
);

test('a log message is a constant: lower case first, no full stop, at most 60 characters', () => {
  expect(logCalls.length).toBeGreaterThan(50);
  const faults = logCalls.filter(({ message }) => !/^'[a-z](?:[^'\\]{0,58}[^'\\.])?'$/.test(message));
  expect(faults).toEqual([]);
});

test('a log message says where it comes from: no two places share one', () => {
  const files = new Map<string, string[]>();
  for (const { file, message } of logCalls) files.set(message, [...(files.get(message) ?? []), file]);
  expect([...files].filter(([, places]) => places.length > 1)).toEqual([]);
});

test('what is to do has an issue number', () => {
  const faults = everything
    .filter((path) => path !== own)
    .flatMap((path) =>
      readSource(path)
        .split('\n')
        .map((line) => ({ path, line })),
    )
    .filter(({ line }) => /\b(TODO|FIXME|XXX)\b(?!\(#\d+\))/.test(line) && !/`TODO/.test(line));
  expect(faults).toEqual([]);
});

test('no test is left out, and none is the only one', () => {
  const faults = tests.filter((path) =>
    /\b(test|it|describe)\.(only|skip|todo)\b|\b(fit|xit|xtest|fdescribe|xdescribe)\(/.test(
      withoutComments(readSource(path)),
    ),
  );
  expect(faults).toEqual([]);
});

test('every test expects something', () => {
  const faults = tests.flatMap((path) => {
    const text = readSource(path);
    // Functions of the file, or of support, that expect for the test.
    const asserting = [...text.matchAll(/(?:function\s+|const\s+)(\w+)/g)]
      .map(([, name = '']) => name)
      .filter((name) => new RegExp(`(?:function|const) ${name}\\b[\\s\\S]{0,1500}?expect\\(`).test(text));
    const expects = new RegExp(`expect\\(|expect\\.|\\b(${['fc\\.assert', 'eventually', ...asserting].join('|')})\\(`);
    return bodiesOfTests(text)
      .filter(({ body }) => !expects.test(body))
      .map(({ name }) => `${path}: ${name}`);
  });
  expect(faults).toEqual([]);
});

/** Each `test(…)` of a file, from its name to the next one. */
function bodiesOfTests(text: string): { readonly name: string; readonly body: string }[] {
  const starts = [...text.matchAll(/^\s*(?:test|it|testWith)(?:\.each\([\s\S]*?\))?\(\s*(?:\w+,\s*)?['"`](.*)/gm)];
  return starts.map((match, index) => ({
    name: match[1] ?? '',
    body: text.slice(match.index, starts[index + 1]?.index),
  }));
}

test('every option says what it means, and a number its unit', () => {
  const faults = [...product, ...listSources('client/src')].flatMap((path) => {
    const text = readSource(path);
    return [...text.matchAll(/^export interface (\w*(?:Options|Policy|Limits))\b[^{]*\{\n([\s\S]*?)^\}/gm)].flatMap(
      ([, name = '', body = '']) => faultsOfOptions(path, body).map((fault) => `${path}: ${name}.${fault}`),
    );
  });
  expect(faults).toEqual([]);
});

const UNIT_IN_NAME =
  /(Ms|Seconds|Bytes|PerSecond|Concurrency|concurrency|Rows|Attempts|Threads|Batch|Size|Depth|Count|Abandoned|Length|lanes|port|Port|prefetch|Unconfirmed|priority|limit|Waiting|max|Percent|depth)$/;
const UNIT_IN_WORDS =
  /\b(milliseconds?|seconds?|bytes?|count|rows?|attempts?|times?|from 1|[0-9] to [0-9]|how many|at most|tasks?|calls)\b/i;

/** Members whose name does not carry their unit or meaning, and that no comment explains. Flags of the command line have their help. */
function faultsOfOptions(path: string, body: string): string[] {
  const faults: string[] = [];
  let comment = '';
  for (const line of body.split('\n')) {
    if (/^\s*(\/\*\*|\*|\/\/)/.test(line)) {
      comment += line;
      continue;
    }
    const [, member, type] = /^ {2}readonly (\w+)\??: (.+);/.exec(line) ?? [];
    if (member !== undefined && type !== undefined) {
      const isNumber = /^number\b/.test(type);
      if (isNumber && !UNIT_IN_NAME.test(member) && !UNIT_IN_WORDS.test(comment)) faults.push(`${member} has no unit`);
      if (type === 'boolean' && comment === '' && !path.startsWith('cli/')) faults.push(`${member} is not explained`);
    }
    comment = '';
  }
  return faults;
}

test('every error code is used, and has a heading in the reference', () => {
  const text = product
    .filter((path) => path !== 'shared/errors/catalogue.ts')
    .map((path) => readSource(path))
    .join('\n');
  const codes = Object.keys(CATALOGUE);
  expect(codes.filter((code) => !text.includes(`'${code}'`))).toEqual([]);
  const headings = [...readSource('docs/reference/errors.md').matchAll(/^## (.+)$/gm)].map(([, heading]) => heading);
  expect(new Set(headings)).toEqual(new Set(codes));
});

test('every metric is counted somewhere', () => {
  const text = product
    .filter((path) => path !== 'shared/observability/metrics-declared.ts')
    .map((path) => readSource(path))
    .join('\n');
  const uncounted = Object.keys(METRICS).filter(
    (key) => key !== 'buildInfo' && !new RegExp(`\\b${key}\\.(add|set|observe|readFrom)\\(`).test(text),
  );
  expect(uncounted).toEqual([]);
});

test('nothing in the repository depends on the machine that it was made on', () => {
  const faults = everything
    .filter((path) => path !== own)
    .flatMap((path) =>
      readSource(path)
        .split('\n')
        .map((line) => ({ path, line })),
    )
    .filter(({ line }) =>
      /(^|[\s'"`(=:])\/(work(?!er)|home\/\w|Users\/\w|opt\/\w)|registry\.npmjs|npm\.pkg|artifactory/.test(line),
    )
    .filter(({ path, line }) => !KNOWN_PLACES.some((known) => known.path === path && line.includes(known.text)));
  expect(faults).toEqual([]);
});

/** Where servers are installed on machines of others, and paths that are data of a test. */
const KNOWN_PLACES = [
  { path: 'deploy/local-stack/binaries.ts', text: '/opt/homebrew' },
  { path: 'test/unit/deploy/local-stack.test.ts', text: '/home/' },
];

test('no source of the product is longer than what one can read', () => {
  const long = product.filter((path) => readSource(path).split('\n').length > 400);
  expect(long).toEqual([]);
});

test('what accepts a task, ends it or lets it live again counts that in the ledger in the same statement', () => {
  // A check of the table holds finished_at to the state: whoever writes the one changes the other.
  const isCounting = /\binsert into ledger_entries\b/;
  const isCause = /\binsert into tasks\b|\bupdate tasks\b[^;]*?\bfinished_at = /;
  const causes = statements.filter(({ text }) => isCause.test(text));
  expect(causes.map(({ name }) => name).toSorted()).toEqual([
    'accept_flows',
    'accept_tasks',
    'cancel_blocked_steps',
    'cancel_tasks',
    'dispatch_due',
    'follow_cancel_requests',
    'reap_orphans',
    'replay_task',
    'send_replay_items',
    'settle_others',
    'settle_succeeded',
  ]);
  expect(causes.filter(({ text }) => !isCounting.test(text))).toEqual([]);
  // And moves on the flow that it is a step of, once its own entries stand.
  const movesOn = (text: string): boolean => /\bend_steps\(/.test(text) && /\bcounted as \(/.test(text);
  const isAcceptance = (name: string): boolean => name.startsWith('accept_');
  const isRevival = (name: string): boolean => name === 'replay_task' || name === 'send_replay_items';
  const ends = causes.filter(({ name }) => !isAcceptance(name) && !isRevival(name));
  expect(ends.filter(({ text }) => !movesOn(text)).map(({ name }) => name)).toEqual([]);
  const revivals = causes.filter(({ name }) => isRevival(name));
  expect(revivals.filter(({ text }) => !/\brevive_steps\(/.test(text)).map(({ name }) => name)).toEqual([]);
});
