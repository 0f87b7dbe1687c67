/** What is said of a flow that is not written as it should be: where, and what is allowed there. */
import { expect, test } from '@jest/globals';
import { flowBody } from '../../shared/flows/flow-body.ts';
import { checkBySchema } from '../../shared/tasks/check-by-schema.ts';

const faultsOf = (json: string): readonly (readonly [string, string])[] => {
  const checked = checkBySchema(flowBody, JSON.parse(json));
  return checked.kind === 'ok' ? [] : checked.faults.map(({ field, reason }) => [field, reason]);
};
const STEP = '"type":"flow.step"';
const flow = (members: string): string => `{"name":"test",${members}}`;
const steps = (members: string): string => flow(`"steps":{${members}}`);

const NO_NAME = 'is a name that nothing here can have';
const STEP_MEMBERS =
  'is not known here; allowed are type, input, queue, priority, maxAttempts, inputs, after, delayMs, onFailure, undo, signal, flow';
const TASK_MEMBERS = 'is not known here; allowed are type, input, queue, priority, maxAttempts';
const NAME = 'must be a letter, then letters, digits, "_", "." or "-"; at most 100';

test('a group has ten thousand members at most', () => {
  const group = (members: number): string =>
    steps(`"a":{${STEP},"inputs":[${Array.from({ length: members }, () => '{}').join(',')}]}`);
  expect(faultsOf(group(10_000))).toEqual([]);
  expect(faultsOf(group(10_001))).toEqual([['steps.a.inputs', 'must be at most 10000 inputs at once']]);
});

test.each([
  ['a step called __proto__', steps(`"__proto__":{${STEP}}`), 'steps.__proto__', NO_NAME],
  ['such a step beside another', steps(`"a":{${STEP}},"__proto__":{${STEP}}`), 'steps.__proto__', NO_NAME],
  ['__proto__ in a step', steps(`"a":{${STEP},"__proto__":1}`), 'steps.a.__proto__', STEP_MEMBERS],
  [
    '__proto__ in an undo',
    steps(`"a":{${STEP},"undo":{${STEP},"__proto__":1}}`),
    'steps.a.undo.__proto__',
    TASK_MEMBERS,
  ],
  [
    '__proto__ in a signal',
    steps(`"a":{${STEP},"signal":{"name":"go","__proto__":1}}`),
    'steps.a.signal.__proto__',
    'is not known here; allowed are name, timeoutMs',
  ],
  [
    '__proto__ in the step for failures',
    flow(`"steps":{},"failureStep":{${STEP},"__proto__":1}`),
    'failureStep.__proto__',
    TASK_MEMBERS,
  ],
  [
    'an unknown member of the flow',
    flow('"steps":{},"step":{}'),
    'step',
    'is not known here; allowed are name, businessType, businessKey, onConflict, onFailure, steps, failureStep, tags, dryRun',
  ],
  ['an unknown member of a step', steps(`"a":{${STEP},"inptu":{}}`), 'steps.a.inptu', STEP_MEMBERS],
  ['a bad name of a step', steps(`"1 a":{${STEP}}`), 'steps["1 a"]', `the name ${NAME}`],
  ['a bad name in after', steps(`"a":{${STEP},"after":["1 a"]}`), 'steps.a.after[0]', NAME],
  ['no steps', '{"name":"test"}', 'steps', 'is required'],
  ['steps as a list', flow('"steps":[]'), 'steps', 'must be an object'],
  ['a step without a type', steps('"a":{}'), 'steps.a.type', 'must be given, or flow in place of it'],
  ['a step that is no object', steps('"a":1'), 'steps.a', 'must be an object'],
  [
    'a rule that there is not',
    flow('"steps":{},"onFailure":"go"'),
    'onFailure',
    'must be one of stop, continue, compensate',
  ],
  [
    'a delay that is no number',
    steps(`"a":{${STEP},"delayMs":"1s"}`),
    'steps.a.delayMs',
    'must be an integer from 0 to 31622400000',
  ],
])('%s is named, with what is allowed', (_what, json, field, reason) => {
  expect(faultsOf(json)).toEqual([[field, reason]]);
});

test('inputs may hold any name: they go on as they came', () => {
  expect(faultsOf(steps(`"a":{${STEP},"input":{"__proto__":1}},"b":{${STEP},"inputs":[{"__proto__":1}]}`))).toEqual([]);
});
