/** The client is written by hand; this holds it to what the services publish. */
import { expect, test } from '@jest/globals';
import { MESSAGE_LIMITS, SUBMISSION_HEADERS } from '../../../shared/amqp/message.ts';
import { SUBMISSION_MEMBERS } from '../../../shared/tasks/submission-body.ts';
import { TASK_STATES } from '../../../shared/tasks/state-machine.ts';
import { MOST_IN_BATCH } from '../../../services/producer/http/batch-body.ts';
import { readSource } from '../../support/source-files.ts';

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
}
interface Operation {
  readonly requestBody: { readonly content: { readonly 'application/json': { readonly schema: Schema } } };
  readonly responses: Readonly<
    Record<string, { readonly content: { readonly 'application/json': { readonly schema: Schema } } }>
  >;
}
const document = JSON.parse(readSource('test/golden/openapi.json')) as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
};

/** Members of an interface of the client, with whether each must be there. */
function membersIn(file: string, name: string): Map<string, boolean> {
  const body =
    new RegExp(`export interface ${name}(?:<[^>]*>)? (?:extends [^{]+)?\\{\\n([\\s\\S]*?)^\\}`, 'm').exec(
      readSource(file),
    )?.[1] ?? '';
  return new Map(
    [...body.matchAll(/^ {2}readonly (\w+)(\??):/gm)].map(([, member = '', mark]) => [member, mark === '']),
  );
}

test('options of a submission are the members of the body, and the key of the request', () => {
  const options = membersIn('client/src/options.ts', 'SubmissionOptions');
  const known = [...SUBMISSION_MEMBERS].filter((name) => name !== 'type' && name !== 'input');
  expect(new Set(options.keys())).toEqual(new Set([...known, 'idempotencyKey']));
  const body = document.paths['/v1/tasks']?.['post']?.requestBody.content['application/json'].schema;
  expect(new Set(membersIn('client/src/options.ts', 'UniqueOptions').keys())).toEqual(
    new Set(Object.keys(body?.properties?.['unique']?.properties ?? {})),
  );
});

test('a task has the members that the Task API answers with, and those that must be there', () => {
  const answered = document.paths['/v1/tasks/{id}']?.['get']?.responses['200']?.content['application/json'].schema;
  for (const [name, schema] of [
    ['Task', answered],
    ['Attempt', answered?.properties?.['attempts']?.items],
  ] as const) {
    const members = membersIn('client/src/task.ts', name);
    expect(new Set(members.keys())).toEqual(new Set(Object.keys(schema?.properties ?? {})));
    const required = [...members].flatMap(([member, isRequired]) => (isRequired ? [member] : []));
    expect(new Set(required)).toEqual(new Set(schema?.required));
  }
});

test('states, headers and limits are those of the services', () => {
  const source = readSource('client/src/task.ts');
  const states = [...(/export type TaskState =([\s\S]*?);/.exec(source)?.[1] ?? '').matchAll(/'(\w+)'/g)].map(
    ([, each]) => each,
  );
  expect(states).toEqual([...TASK_STATES]);
  const headers = [...readSource('client/src/amqp-client.ts').matchAll(/'(warren-[a-z-]+)':/g)].map(([, each]) => each);
  // Nobody here listens for a reply.
  const { replyOutcome: _replyOutcome, ...sent } = SUBMISSION_HEADERS;
  expect(new Set(headers)).toEqual(new Set(Object.values(sent)));
  expect(readSource('client/src/http-client.ts')).toContain(
    `MOST_IN_BATCH = ${MOST_IN_BATCH.toLocaleString('en').replace(',', '_')};`,
  );
  expect(readSource('client/src/input.ts')).toContain(`DEEPEST = ${MESSAGE_LIMITS.depth};`);
});
