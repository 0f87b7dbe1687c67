import { expect, test } from '@jest/globals';
// oxlint-disable jest/no-conditional-expect -- because what holds depends on what the model says
import fc from 'fast-check';
import { Isolation } from '../../services/worker/isolation.ts';

type Step = 'enter' | 'suspect' | 'leave' | 'abort' | 'abort all' | 'give back';

const steps = fc.array(
  fc.record({
    step: fc.constantFrom<Step>('enter', 'enter', 'suspect', 'leave', 'leave', 'abort', 'abort all', 'give back'),
    which: fc.nat(20),
  }),
  { maxLength: 80 },
);
const turn = async (): Promise<void> => await new Promise((resolve) => setImmediate(resolve));

test('whoever runs alone has nobody beside it, and whatever cuts waits off, the gate opens again and loses nobody', async () => {
  await fc.assert(
    fc.asyncProperty(steps, async (script) => {
      const gate = new Isolation(() => 0);
      // Names of those inside beside others, alone, waiting to be alone, waiting to enter.
      const [beside, alone, suspects, entering] = [
        new Set<string>(),
        new Set<string>(),
        new Set<string>(),
        new Set<string>(),
      ];
      const cutOff = new Set<string>();
      let count = 0;
      const enter = async (): Promise<void> => {
        const name = `task ${(count += 1)}`;
        entering.add(name);
        const entry = await gate.enter();
        entering.delete(name);
        if (entry === 'in') beside.add(name);
      };
      const suspect = async (name: string): Promise<void> => {
        beside.delete(name);
        suspects.add(name);
        const how = await gate.alone(name);
        suspects.delete(name);
        if (how !== 'alone') cutOff.add(name);
        (how === 'alone' ? alone : beside).add(name); // cut off, it is inside until it leaves
      };
      const pick = (from: Set<string>, which: number): string | undefined => [...from][which % Math.max(from.size, 1)];
      const leave = (which: number): void => {
        const name = pick(alone.size > 0 ? alone : beside, which);
        if (name === undefined) return;
        alone.delete(name);
        beside.delete(name);
        gate.leave();
      };

      for (const { step, which } of script) {
        const [inside, waiting] = [pick(beside, which), pick(suspects, which)];
        if (step === 'enter') void enter();
        else if (step === 'suspect' && inside !== undefined) void suspect(inside);
        else if (step === 'leave') leave(which);
        else if (step === 'abort' && waiting !== undefined) expect(gate.abort(waiting, 'cancel')).toBe(true);
        else if (step === 'abort all') gate.abortAll('lease');
        else if (step === 'give back') gate.giveBack();
        await turn();
        expect(alone.size).toBeLessThanOrEqual(1);
        // Those cut off leave without having run, so they may stand beside the one alone until they do.
        if (alone.size > 0) expect([...beside].filter((name) => !cutOff.has(name))).toEqual([]);
        if (alone.size + suspects.size > 0) expect(gate.isClosed).toBe(true);
        else if (![...beside].some((name) => cutOff.has(name))) expect(gate.isClosed).toBe(false);
        if (!gate.isClosed) expect(entering.size).toBe(0);
      }
      for (let left = 0; left < 200 && beside.size + alone.size + suspects.size + entering.size > 0; left += 1) {
        leave(left);
        await turn();
      }
      expect([beside.size, alone.size, suspects.size, entering.size, gate.isClosed]).toEqual([0, 0, 0, 0, false]);
      expect(gate.enter()).toBe('in');
    }),
    { numRuns: 300 },
  );
});
