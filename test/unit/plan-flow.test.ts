/** What a flow is planned as, and what is said of one that cannot be. */
import { describe, expect, test } from '@jest/globals';
import { flowBody } from '../../shared/flows/flow-body.ts';
import { placeSteps } from '../../shared/flows/graph.ts';
import { planFlow } from '../../shared/flows/plan-flow.ts';
import type { FlowPlan, PlannedStep } from '../../shared/flows/planned-flow.ts';
import type { Catalog, KnownType } from '../../shared/tasks/type-catalog.ts';

const known: KnownType = {
  name: 'flow.step',
  queue: 'default',
  priority: 4,
  maxAttempts: 3,
  timeoutMs: 1_000,
  isolation: 'loop',
  keepLogs: false,
  retry: undefined,
  concurrency: { limit: 1, key: 'input.who' },
  rate: undefined,
  codeVersion: '',
  announcedAt: new Date(0),
  inputSchema: undefined,
  checkInput: (value) => ('bad' in (value as object) ? [{ field: 'input.bad', reason: 'is not allowed' }] : []),
};
const catalog: Catalog = {
  find: (name) => (name === 'flow.step' ? known : undefined),
  hasQueue: (name) => name === 'default',
};

let nested = 0;
const plan = (flow: Readonly<Record<string, unknown>>): FlowPlan => {
  const raw = JSON.stringify({ name: 'test', ...flow });
  return planFlow(
    flowBody.parse(JSON.parse(raw)),
    raw,
    catalog,
    { messageBytes: 1_000, depth: 8 },
    { id: 'the-id', nestedId: () => `nested-${(nested += 1)}` },
  );
};
const planned = (flow: Readonly<Record<string, unknown>>): readonly PlannedStep[] => {
  const result = plan(flow);
  if (result.kind === 'refused') throw new Error(JSON.stringify(result.faults));
  return result.steps;
};
const faultsOf = (flow: Readonly<Record<string, unknown>>): readonly (readonly [string, string])[] => {
  const result = plan(flow);
  return result.kind === 'refused' ? result.faults.map(({ field, reason }) => [field, reason]) : [];
};

const type = 'flow.step';

describe('steps', () => {
  test('wait for those that they name and for those that their input refers to, each once', () => {
    const steps = planned({
      steps: {
        a: { type },
        b: { type, after: ['a'], input: { x: { $result: 'a' }, y: [{ $result: 'a', path: '/p~1q/0' }] } },
        c: { type, after: ['a', 'b'], signal: { name: 'go' } },
      },
    });
    expect(steps.map(({ name, waitsFor, next, level }) => [name, waitsFor, next, level])).toEqual([
      ['a', 0, [1, 2], 0],
      ['b', 1, [2], 1],
      ['c', 3, [], 2],
    ]);
    expect(steps[1]?.template).toEqual({
      pieces: ['{"x":', ',"y":[', ']}'],
      refs: [{ step: 0 }, { step: 0, path: ['p/q', '0'] }],
    });
    expect(steps[2]?.template).toEqual({ pieces: ['{"a":', ',"b":', '}'], refs: [{ step: 0 }, { step: 1 }] });
  });

  test('of a group are its tasks; an empty one hands on what it waits for', () => {
    const steps = planned({
      steps: {
        a: { type },
        many: { type, after: ['a'], inputs: [{ n: 1 }, { n: 2 }] },
        none: { type, after: ['many'], inputs: [] },
        last: { type, after: ['none'] },
      },
    });
    expect(steps.map(({ name, member, waitsFor, next, level }) => [name, member, waitsFor, next, level])).toEqual([
      ['a', undefined, 0, [1, 2], 0],
      ['many', 0, 1, [3], 1],
      ['many', 1, 1, [3], 1],
      ['last', undefined, 2, [], 2],
    ]);
    expect(steps[3]?.template).toEqual({ pieces: ['{"many":', '}'], refs: [{ group: 'many' }] });
  });

  test('that refer to nothing keep their input to the digit, and count towards the limits of their type', () => {
    const raw = '{"name":"t","steps":{"a":{"type":"flow.step","input":{"n": 1.50, "who":"ann"}}}}';
    const result = planFlow(
      flowBody.parse(JSON.parse(raw)),
      raw,
      catalog,
      { messageBytes: 1_000, depth: 8 },
      { id: 'the-id', nestedId: () => `nested-${(nested += 1)}` },
    );
    expect(result).toMatchObject({ steps: [{ task: { input: '{"n":1.50,"who":"ann"}', concurrencyKey: 'ann' } }] });
  });

  test('are undone member by member, and failures are told of', () => {
    const steps = planned({
      businessKey: '17',
      steps: { many: { type, inputs: [{ n: 1 }, { n: 2 }], undo: { type, input: { it: { $result: 'many' } } } } },
      failureStep: { type },
    });
    expect(steps.slice(2).map(({ step, kind, undoOf, template }) => [step, kind, undoOf, template?.refs])).toEqual([
      [2, 'undo', 0, [{ step: 0 }]],
      [3, 'undo', 1, [{ step: 1 }]],
      [4, 'failure', undefined, [{ failed: true }]],
    ]);
    expect(steps[4]?.template?.pieces).toEqual(['{"flowId":"the-id","name":"test","businessKey":"17","failed":', '}']);
  });
});

describe('a flow that is a step', () => {
  const nestedIn = (flow: Readonly<Record<string, unknown>>): Extract<FlowPlan, { kind: 'ok' }> => {
    const result = plan(flow);
    if (result.kind === 'refused') throw new Error(JSON.stringify(result.faults));
    return result;
  };

  test('waits for what its own steps read from around, and its first steps wait for it', () => {
    const { steps, nested: flows } = nestedIn({
      steps: {
        a: { type },
        b: { type },
        in: {
          after: ['a'],
          delayMs: 5,
          flow: {
            name: 'inner',
            onFailure: 'continue',
            steps: {
              x: { type },
              y: { type, delayMs: 2, input: { all: { $result: 'b', path: '/n' } } },
              z: { type, input: { x: { $result: 'x' }, by: { $signal: 'go' } } },
            },
          },
        },
        last: { type, after: ['in'], signal: { name: 'go' } },
      },
    });
    expect(steps.map(({ name, waitsFor, next, level, child }) => [name, waitsFor, next, level, child])).toEqual([
      ['a', 0, [2], 0, undefined],
      ['b', 0, [2], 0, undefined],
      ['in', 2, [3], 1, flows[0]?.id],
      ['last', 2, [], 2, undefined],
    ]);
    expect(steps[3]?.template?.refs).toEqual([{ object: 2, name: 'in' }]);
    expect(flows).toMatchObject([{ parentId: 'the-id', parentStep: 2, name: 'inner', onFailure: 'continue' }]);
    expect(
      flows[0]?.steps.map(({ name, kind, waitsFor, delayMs, template }) => [
        name,
        kind,
        waitsFor,
        delayMs,
        template?.refs,
      ]),
    ).toEqual([
      // What the step would get: it waits for both, and comes after one.
      ['x', 'step', 1, 5, [{ object: 0, name: 'a', up: 1 }]],
      ['y', 'step', 1, 7, [{ step: 1, path: ['n'], up: 1 }]],
      ['z', 'step', 1, undefined, [{ step: 0 }, { signal: 'go', up: 1 }]],
      ['begin', 'begin', 0, undefined, undefined],
    ]);
    expect(flows[0]?.steps.at(-1)).toMatchObject({ step: -1, next: [0, 1] });
  });

  test('names what is inside first, and is undone step by step where it says nothing of that', () => {
    const { steps, nested: flows } = nestedIn({
      steps: {
        same: { type },
        in: {
          flow: {
            name: 'inner',
            steps: { same: { type, undo: { type } }, of: { type, input: { it: { $result: 'same' } } } },
          },
        },
      },
    });
    expect(flows[0]?.steps[1]?.template?.refs).toEqual([{ step: 0 }]);
    expect(steps[1]).toMatchObject({ name: 'in', waitsFor: 0 });
    expect(steps.at(-1)).toMatchObject({ kind: 'undo', name: 'undo in', undoOf: 1, child: flows[0]?.id });
  });

  test('tells its own step for failures of itself', () => {
    const { nested: flows } = nestedIn({
      businessKey: '17',
      steps: { in: { flow: { name: 'inner', steps: {}, failureStep: { type } } } },
    });
    expect(flows[0]?.steps[0]?.template?.pieces[0]).toBe(
      `{"flowId":"${flows[0]?.id ?? ''}","name":"inner","businessKey":"17","failed":`,
    );
  });

  test('counts towards the bounds of the whole', () => {
    const many = { type, inputs: Array.from({ length: 10_000 }, () => ({})) };
    expect(faultsOf({ steps: { a: many, in: { flow: { name: 'inner', steps: { b: many, c: { type } } } } } })).toEqual([
      ['steps', 'are 20001 tasks; a flow has 20000 at most'],
    ]);
    const empties = Object.fromEntries(
      Array.from({ length: 1_001 }, (_each, n) => [`n${n}`, { flow: { name: 'e', steps: {} } }]),
    );
    expect(faultsOf({ steps: empties })).toEqual([['steps', 'are 1001 nested flows; a flow has 1000 at most']]);
  });
});

describe('what cannot be is refused, with the place', () => {
  test.each<[string, Readonly<Record<string, unknown>>, string, RegExp]>([
    ['an unknown step', { steps: { a: { type, after: ['b'] } } }, 'steps.a.after[0]', /no step/],
    ['itself', { steps: { a: { type, after: ['a'] } } }, 'steps.a.after[0]', /circle: a waits for a/],
    [
      'a circle',
      { steps: { a: { type, after: ['c'] }, b: { type, after: ['a'] }, c: { type, input: { x: { $result: 'b' } } } } },
      'steps.a.after[0]',
      /a waits for c waits for b waits for a/,
    ],
    [
      'an unknown result',
      { steps: { a: { type, input: { x: [{ $result: 'b' }] } } } },
      'steps.a.input.x[0]',
      /no step/,
    ],
    ['an unknown signal', { steps: { a: { type, input: { x: { $signal: 'b' } } } } }, 'steps.a.input.x', /signal/],
    [
      'a reference with more',
      { steps: { a: { type, input: { x: { $result: 'a', y: 1 } } } } },
      'steps.a.input.x',
      /no member "y"/,
    ],
    [
      'a reference to a number',
      { steps: { a: { type, input: { x: { $result: 1 } } } } },
      'steps.a.input.x',
      /must be a name/,
    ],
    [
      'an odd path',
      { steps: { a: { type }, b: { type, input: { x: { $result: 'a', path: 'id' } } } } },
      'steps.b.input.x',
      /RFC 6901/,
    ],
    ['an unknown type', { steps: { a: { type: 'other' } } }, 'steps.a.type', /no announced/],
    ['an unknown queue', { steps: { a: { type, queue: 'other' } } }, 'steps.a.queue', /no queue/],
    [
      'an input that does not fit',
      { steps: { a: { type, inputs: [{}, { bad: 1 }] } } },
      'steps.a.inputs[1].bad',
      /not allowed/,
    ],
    ['both inputs', { steps: { a: { type, input: {}, inputs: [] } } }, 'steps.a.inputs', /together/],
    ['too much', { steps: { a: { type, input: { x: 'x'.repeat(1_000) } } } }, 'steps.a.input', /1000 characters/],
    [
      'an undoing of an unknown',
      { steps: { a: { type, undo: { type, input: { x: { $result: 'b' } } } } } },
      'steps.a.undo.input.x',
      /no step/,
    ],
    [
      'groups that cross',
      {
        steps: {
          a: { type, inputs: Array.from({ length: 500 }, () => ({})) },
          b: { type, after: ['a'], inputs: Array.from({ length: 500 }, () => ({})) },
        },
      },
      'steps.b',
      /dependencies/,
    ],
  ])('%s', (_what, flow, field, reason) => {
    expect(faultsOf(flow)).toEqual([[field, expect.stringMatching(reason)]]);
  });

  test('all of it at once', () => {
    expect(faultsOf({ steps: { a: { type: 'x' }, b: { type: 'y' } } }).map(([field]) => field)).toEqual([
      'steps.a.type',
      'steps.b.type',
    ]);
  });
});

test('groups without members are kept with what waits for them, and how a member is undone', () => {
  const flow = {
    steps: {
      a: { type },
      first: {
        type,
        inputs: [],
        after: ['a'],
        onFailure: 'ignore',
        undo: { type, input: { gave: { $result: 'first' } } },
      },
      second: { type, inputs: [], after: ['first'], undo: { type } },
      b: { type, inputs: [{}, {}], after: ['second'] },
      c: { type, input: { all: { $result: 'first' } } },
    },
  };
  const result = plan(flow);
  const task = { type, queue: 'default', priority: 4, maxAttempts: 3, input: '{}' };
  expect(result.kind === 'ok' && result.groups).toEqual({
    first: {
      after: ['a'],
      next: [3, 1, 2],
      level: 1,
      onFailure: 'ignore',
      undo: { spec: task, pieces: ['{"gave":', '}'], refs: [{ step: -1 }] },
    },
    second: {
      after: ['first'],
      next: [1, 2],
      level: 1,
      undo: { spec: task, pieces: ['', ''], refs: [{ object: -1, name: 'second' }] },
    },
  });
  expect(plan({ steps: { a: { type } } })).not.toHaveProperty('groups');
});

test('so many empty groups that wait for each other that nobody could keep them are refused', () => {
  const steps = Object.fromEntries(
    Array.from({ length: 1_000 }, (_each, n) => [`g${n}`, { type, inputs: [], after: n === 0 ? [] : [`g${n - 1}`] }]),
  );
  const all = { type, inputs: Array.from({ length: 300 }, () => ({})), after: ['g999'] };
  expect(faultsOf({ steps: { ...steps, all } })).toEqual([['steps', expect.stringMatching(/empty groups/)]]);
});

test('a chain of ten thousand is placed, whatever its order', () => {
  const names = Array.from({ length: 10_000 }, (_each, index) => `s${index}`);
  const nodes = names.map((name, index) => ({
    name,
    members: 1,
    before: index + 1 < names.length ? [{ name: `s${index + 1}`, field: '' }] : [],
  }));
  const placed = placeSteps(nodes);
  expect(placed.kind === 'ok' && placed.placed.get('s0')?.level).toBe(9_999);
});
