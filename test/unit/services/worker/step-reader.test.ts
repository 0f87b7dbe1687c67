/** Results that a handler reads are fetched as it asks for them. */
import { expect, test } from '@jest/globals';
import { iterateResults } from '../../../../services/worker/step-reader.ts';
import type { AskedResults, ResultsPage } from '../../../../services/worker/step-reader.ts';

/** Three pages of two. */
function threePages(): {
  readonly asked: AskedResults[];
  readonly read: (asked: AskedResults) => Promise<ResultsPage>;
} {
  const asked: AskedResults[] = [];
  const read = async (each: AskedResults): Promise<ResultsPage> => {
    asked.push(each);
    const first = each.after + 1;
    const results = [`{"n":${first}}`, first === 2 ? null : `{"n":${first + 1}}`];
    return await Promise.resolve({ results, next: first === 4 ? undefined : first + 1 });
  };
  return { asked, read };
}

test('a page is fetched once those before it are used up, and none after the handler has left', async () => {
  const { asked, read } = threePages();
  const { signal } = new AbortController();
  const seen: unknown[] = [];
  for await (const n of iterateResults(read, signal, 'many', { path: '/n' })) {
    seen.push([n, asked.length]);
  }
  expect(seen).toEqual([
    [0, 1],
    [1, 1],
    [2, 2],
    [null, 2],
    [4, 3],
    [5, 3],
  ]);
  expect(asked).toEqual([-1, 1, 3].map((after) => ({ name: 'many', after })));
  asked.length = 0;
  for await (const first of iterateResults(read, signal, 'many')) {
    expect(first).toEqual({ n: 0 });
    break;
  }
  expect(asked).toHaveLength(1);
});

test('an attempt that is aborted fetches no more', async () => {
  const { asked, read } = threePages();
  const controller = new AbortController();
  const reading = iterateResults(read, controller.signal, 'many');
  await reading.next();
  controller.abort(new Error('cancelled'));
  await reading.next(); // was there already
  await expect(reading.next()).rejects.toThrow('cancelled');
  expect(asked).toHaveLength(1);
});

test('a path that is none is refused before anything is fetched', async () => {
  const { asked, read } = threePages();
  const { signal } = new AbortController();
  await expect(iterateResults(read, signal, 'many', { path: 'n' }).next()).rejects.toMatchObject({
    code: 'field-invalid',
    facts: { field: 'path' },
  });
  expect(asked).toEqual([]);
});
