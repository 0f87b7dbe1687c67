/** What `defineFlow` writes down, and what its types allow. */
import { expect, test } from '@jest/globals';
import { z } from 'zod';
import { defineFlow } from '../../../client/src/client.ts';
import type { FlowBuilder } from '../../../client/src/client.ts';
import { defineTask } from '../../../shared/tasks/define-task.ts';

const check = defineTask({
  name: 'user.check',
  input: z.object({ user: z.number() }),
  run: ({ user }) => ({ user, 'odd/key~': [{ path: 'x' }], maybe: user > 1 ? 'yes' : undefined }),
});
const create = defineTask({
  name: 'coupon.create',
  input: z.object({ user: z.number(), text: z.string(), all: z.array(z.object({ user: z.number() })).optional() }),
  run: () => 7,
});

const bodyOf = (definition: { render: (input: never) => string }, input: unknown = {}): unknown =>
  JSON.parse(`${definition.render(input as never)}}`);

test('results are references in inputs, whatever their members are called', () => {
  const flow = defineFlow(
    'coupon',
    (steps, { user }: { user: number }) => {
      const checked = steps.step('check', check, { user });
      const many = steps.group('many', check, [{ user: 1 }, { user: checked.result.user }], { onFailure: 'ignore' });
      const made = steps
        .step(
          'create',
          create,
          { user: many.result[1]?.user ?? 0, text: checked.result['odd/key~'][0]?.path ?? '', all: many.result },
          { after: [checked], delayMs: 5, signal: { name: 'ok', timeoutMs: 10 } },
        )
        .undo(check, { user: 3 });
      steps.step('last', 'other.service', { made: made.result, whole: steps.signal<{ by: string }>('ok').by });
      steps.onFailure('tell.somebody');
    },
    { onFailure: 'compensate', businessType: 'coupon' },
  );
  expect(bodyOf(flow, { user: 123 })).toEqual({
    name: 'coupon',
    businessType: 'coupon',
    onFailure: 'compensate',
    steps: {
      check: { type: 'user.check', input: { user: 123 } },
      many: {
        type: 'user.check',
        inputs: [{ user: 1 }, { user: { $result: 'check', path: '/user' } }],
        onFailure: 'ignore',
      },
      create: {
        type: 'coupon.create',
        input: {
          user: { $result: 'many', path: '/1/user' },
          text: { $result: 'check', path: '/odd~1key~0/0/path' },
          all: { $result: 'many' },
        },
        after: ['check'],
        delayMs: 5,
        signal: { name: 'ok', timeoutMs: 10 },
        undo: { type: 'user.check', input: { user: 3 } },
      },
      last: { type: 'other.service', input: { made: { $result: 'create' }, whole: { $signal: 'ok', path: '/by' } } },
    },
    failureStep: { type: 'tell.somebody' },
  });
});

test('what cannot be sent is refused with its place, and a name is there once', () => {
  const refused = (write: Parameters<typeof defineFlow>[1]): unknown => {
    try {
      return bodyOf(defineFlow('bad', write));
    } catch (thrown) {
      return (thrown as { readonly field?: string }).field;
    }
  };
  expect(refused((flow) => void flow.step('a', 'any', { at: new Date() }))).toBe('steps.a.input.at');
  expect(refused((flow) => void flow.group('a', 'any', [{}, { big: 2n }]))).toBe('steps.a.inputs[1].big');
  expect(
    refused((flow) => {
      flow.step('a', 'any', {});
      flow.step('a', 'any', {});
    }),
  ).toBe('steps.a');
});

test('types hold from result to input', () => {
  const flow = defineFlow('typed', (steps) => {
    const checked = steps.step('check', check, { user: 1 });
    // @ts-expect-error -- a list is no number
    steps.step('a', check, { user: checked.result['odd/key~'] });
    // @ts-expect-error -- there is no such member
    void checked.result.nothing;
    // @ts-expect-error -- a member is missing
    steps.step('c', create, { user: checked.result.user });
    steps.step('d', check, { user: checked.result.user });
  });
  expect(Object.keys((bodyOf(flow) as { steps: object }).steps)).toEqual(['check', 'a', 'c', 'd']);
});

const settle = defineFlow(
  'settlement',
  (flow, { user, of }: { user: number; of: string }) => {
    const first = flow.step('first', check, { user });
    return flow.step('told', create, { user: first.result.user, text: of });
  },
  { onFailure: 'compensate', businessType: 'left out' },
);

test('a flow is a step of another, typed from its input to its result', () => {
  const outer = defineFlow('order', (flow, { user }: { user: number }) => {
    const checked = flow.step('check', check, { user });
    const settled = flow.nest(
      'settle',
      settle,
      { user: checked.result.user, of: checked.result['odd/key~'][0]?.path ?? '' },
      { after: [checked], onFailure: 'ignore', delayMs: 5, signal: { name: 'ok' } },
    );
    flow.step('last', check, { user: settled.result });
    // @ts-expect-error its result is a number
    flow.step('wrong', create, { user: 1, text: settled.result });
    // @ts-expect-error its input wants a text
    flow.nest('wrong too', settle, { user: 1, of: 1 });
  });
  expect(bodyOf(outer, { user: 1 })).toMatchObject({
    steps: {
      settle: {
        flow: {
          name: 'settlement',
          onFailure: 'compensate',
          steps: {
            first: { type: 'user.check', input: { user: { $result: 'check', path: '/user' } } },
            told: {
              type: 'coupon.create',
              input: {
                user: { $result: 'first', path: '/user' },
                text: { $result: 'check', path: '/odd~1key~0/0/path' },
              },
            },
          },
        },
        after: ['check'],
        onFailure: 'ignore',
        delayMs: 5,
        signal: { name: 'ok' },
      },
      last: { type: 'user.check', input: { user: { $result: 'settle' } } },
    },
  });
  expect(JSON.stringify(bodyOf(outer, { user: 1 }))).not.toContain('left out');
});

test('of several last steps the one that is returned is told apart; what is none, or would be mistaken for another, is refused', () => {
  const two = defineFlow('two', (flow) => {
    flow.step('a', check, { user: 1 });
    return flow.step('b', check, { user: 2 });
  });
  const of = (write: (flow: FlowBuilder) => void): unknown => bodyOf(defineFlow('outer', write));
  expect(of((flow) => void flow.step('last', check, { user: flow.nest('in', two, {}).result.user }))).toMatchObject({
    steps: { last: { input: { user: { $result: 'in', path: '/b/user' } } } },
  });
  const notLast = defineFlow('not last', (flow) => {
    const a = flow.step('a', check, { user: 1 });
    flow.step('b', check, { user: a.result.user });
    return a;
  });
  expect(() => of((flow) => void flow.nest('in', notLast, {}))).toThrow(/steps\.in\.flow returns the step "a"/);
  // Names are looked up inside first.
  expect(() =>
    of((flow) => {
      const first = flow.step('first', check, { user: 1 });
      flow.nest('in', settle, { user: first.result.user, of: '' });
    }),
  ).toThrow(/has a step "first" of its own/);
});
