/** The docs speak of what there is: links, anchors, commands, settings, metrics, files. */
import { existsSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { expect, test } from '@jest/globals';
import { blocksOf, listPages } from '../../scripts/docs-run.ts';
import { listSettings } from '../../shared/config/schema.ts';
import { METRICS } from '../../shared/observability/metrics-declared.ts';
import { ROOT, listFiles, readSource } from '../support/source-files.ts';

const pages = await listPages(ROOT);
const textOf = new Map(pages.map((page) => [page, readSource(page)]));
const written = pages.filter((page) => page.startsWith('docs/') && !page.startsWith('docs/reference/'));
const decisions = pages.filter((page) => page.startsWith('docs/decisions/'));
const everything = [...textOf];

/** What a pattern finds on all pages, with the page. */
function findAll(pattern: RegExp): { readonly page: string; readonly found: string }[] {
  return everything.flatMap(([page, text]) =>
    [...text.matchAll(pattern)].map(([whole, group]) => ({ page, found: group ?? whole })),
  );
}

test('the page of the architecture names every table that there is', () => {
  const tables = [...readSource('test/golden/schema.sql').matchAll(/^create table (\w+)/gm)].map(
    ([, name = '']) => name,
  );
  const page = textOf.get('docs/architecture.md') ?? '';
  expect(tables.length).toBeGreaterThan(20);
  expect(tables.filter((name) => name !== 'tasks_default' && !page.includes(`\`${name}\``))).toEqual([]);
});

test('every relative link leads to a file, and every anchor to a heading', () => {
  const faults = everything.flatMap(([page, text]) =>
    [...withoutFences(text).matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target = '']) => target)
      .filter((target) => !/^https?:/.test(target) && !leads(page, target))
      .map((target) => `${page}: ${target}`),
  );
  expect(faults).toEqual([]);
});

function leads(page: string, target: string): boolean {
  const [path = '', anchor] = target.split('#');
  const file = path === '' ? page : posix.join(dirname(page), path);
  if (!existsSync(join(ROOT, file))) return false;
  return anchor === undefined || anchorsOf(readSource(file)).has(anchor);
}

/** As hosting platforms make them: lower case, without punctuation, a dash for each space. */
function anchorsOf(text: string): Set<string> {
  const headings = [...withoutFences(text).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading);
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

function withoutFences(text: string): string {
  return text.replaceAll(/^```[\s\S]*?^```$/gm, '');
}

test('a link to another host leads to a standard, never to where something is installed from', () => {
  const hosts = findAll(/\]\(https?:\/\/([^/)]+)/g).map(({ found }) => found);
  expect(hosts.filter((host) => !['keepachangelog.com', 'semver.org', 'www.w3.org'].includes(host))).toEqual([]);
});

test('every fenced block names its language', () => {
  const known = ['sh', 'ts', 'python', 'json', 'mermaid', 'text'];
  const faults = everything.flatMap(([page, text]) =>
    blocksOf(page, text).filter(({ language }) => !known.includes(language)),
  );
  expect(faults).toEqual([]);
});

test('a page says for whom it is, and what to read next', () => {
  for (const page of written.filter((each) => !decisions.includes(each))) {
    const text = textOf.get(page) ?? '';
    expect({ page, intro: text.split('\n')[2] }).toEqual({ page, intro: expect.stringMatching(/^For /) });
    expect({ page, last: text.split(/^## /m).at(-1)?.split('\n')[0] }).toEqual({ page, last: 'Next' });
  }
});

test('a decision has its four headings and at most 60 lines; numbers have no gaps', () => {
  for (const page of decisions) {
    const text = textOf.get(page) ?? '';
    const headings = [...text.matchAll(/^## (.+)$/gm)].map(([, heading]) => heading);
    expect({ page, headings }).toEqual({ page, headings: ['Status', 'Context', 'Decision', 'Consequences'] });
    expect(text.split('\n').length).toBeLessThanOrEqual(61);
  }
  const numbers = decisions.map((page) => Number(/\/(\d{4})-/.exec(page)?.[1]));
  expect(numbers).toEqual(decisions.map((_page, index) => index + 1));
});

test('the README and CONTRIBUTING stay short', () => {
  expect(readSource('README.md').split('\n').length).toBeLessThanOrEqual(200);
  expect(readSource('CONTRIBUTING.md').split('\n').length).toBeLessThanOrEqual(120);
});

test('the first screen of the README holds the two commands', () => {
  const first = readSource('README.md').split('\n').slice(0, 16).join('\n');
  expect(first).toContain('make demo');
  expect(first).toContain('make test');
});

test('every make target that is named exists', () => {
  const targets = new Set([...readSource('Makefile').matchAll(/^([a-z0-9-]+):/gm)].map(([, target]) => target));
  const named = findAll(/(?:`|^|\n)make ([a-z0-9-]+)/g);
  expect(named.filter(({ found }) => !targets.has(found))).toEqual([]);
  expect(named.length).toBeGreaterThan(10);
});

test('every command of warren that is named exists', () => {
  const commands = new Set(
    listFiles('test/golden/help').map((file) => file.replace(/^.*\/warren-?|\.txt$/g, '').replaceAll('-', ' ')),
  );
  const named = findAll(/(?:`|^|\n|\()warren ((?:[a-z]+ ?){1,2})/g).filter(({ found }) => found.trim() !== '');
  const faults = named.filter(({ found }) => {
    const [first = '', second = ''] = found.trim().split(' ');
    return (
      !commands.has(first) || (commands.has(`${first} ${second}`) ? false : isGroup(first, commands) && second !== '')
    );
  });
  expect(faults).toEqual([]);
});

function isGroup(name: string, commands: ReadonlySet<string>): boolean {
  return [...commands].some((command) => command.startsWith(`${name} `));
}

test('every setting, variable and metric that is named exists', () => {
  const settings = listSettings();
  const paths = new Set(settings.map(({ path }) => path));
  const groups = new Set([...paths].map((path) => path.split('.')[0]));
  const named = findAll(/`([a-z][A-Za-z]+\.[a-z][A-Za-z]+)`/g).filter(({ found }) => groups.has(found.split('.')[0]));
  // `http.request` is a task type.
  expect(named.filter(({ found }) => found !== 'http.request' && !paths.has(found))).toEqual([]);

  const compose = readSource('deploy/compose.yaml').matchAll(/\$\{(WARREN_\w+)/g);
  const variables = new Set([
    ...settings.flatMap(({ env }) => [env, `${env}_FILE`]),
    ...[...compose].map(([, name = '']) => name),
    ...OTHER_VARIABLES,
  ]);
  expect(findAll(/\b(WARREN_[A-Z_]+[A-Z])\b/g).filter(({ found }) => !variables.has(found))).toEqual([]);

  const metrics = new Set(Object.values(METRICS).map(({ name }) => name as string));
  expect(findAll(/\b(warren_[a-z_]+)\b/g).filter(({ found }) => !metrics.has(found))).toEqual([]);
});

/** Of the command line and of the tests. */
const OTHER_VARIABLES = [
  'WARREN_CONFIG',
  'WARREN_URL',
  'WARREN_DEAD_LETTERS_URL',
  'WARREN_TOKEN',
  'WARREN_TOKEN_FILE',
  'WARREN_CA_FILE',
  'WARREN_TEST_AMQP_URL',
  'WARREN_TEST_DATABASE_URL',
];

test('every file that is named exists', () => {
  const files = listFiles('.');
  const named = findAll(/`((?:[\w.-]+\/)+[\w.-]+\.(?:ts|sql|json|md|txt|sh|yaml))`/g).filter(
    ({ found }) => !/NNNN|^dist\/|mail-welcome|greeting/.test(found),
  );
  expect(named.filter(({ found }) => !files.some((file) => file === found))).toEqual([]);
});

test('the vocabulary is kept: a task is never a job', () => {
  const faults = everything
    // Kubernetes calls jobs what runs once to its end.
    .filter(([page]) => page !== 'docs/glossary.md' && page !== 'docs/kubernetes.md')
    .filter(([, text]) => /\bjobs?\b|\bredrive|\bmorgue\b/i.test(text));
  expect(faults.map(([page]) => page)).toEqual([]);
});

test('the changelog begins with what is unreleased, one sentence a change', () => {
  const text = readSource('CHANGELOG.md');
  expect(/^## (.+)$/m.exec(text)?.[1]).toBe('[Unreleased]');
  const changes = text.split(/^- /m).slice(1);
  expect(changes.filter((change) => !change.trim().endsWith('.'))).toEqual([]);
});

test('no page shouts, and none is decorated', () => {
  const faults = everything.filter(
    ([page, text]) => page !== 'docs/reference/cli.md' && /!\[|\p{Emoji_Presentation}|!!/u.test(text),
  );
  expect(faults.map(([page]) => page)).toEqual([]);
});

test('each fault on the page of faults names a test that there is', () => {
  const rows = [...readSource('docs/faults.md').matchAll(/\| `([^`]+)`: (.+) \|$/gm)];
  expect(rows.length).toBeGreaterThan(50);
  const missing = rows.filter(([, file = '', title = '']) => {
    const path = `test/${file}.test.ts`;
    return !existsSync(join(ROOT, path)) || !readSource(path).includes(title);
  });
  expect(missing.map(([row]) => row)).toEqual([]);
});
