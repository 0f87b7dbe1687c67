import { describe, expect, test } from '@jest/globals';
import { WarrenError } from '../../../../shared/errors/warren-error.ts';
import { inOrder } from '../../../../shared/lifecycle/in-order.ts';
import { Loop } from '../../../../shared/lifecycle/loop.ts';
import type { Part } from '../../../../shared/lifecycle/part.ts';
import { silentLogger } from '../../../../shared/observability/silent-log.ts';
import { systemClock } from '../../../../shared/time/clock.ts';
import { eventually } from '../../../support/eventually.ts';
import { listLogger } from '../../../support/runner.ts';
import type { LoggedLine } from '../../../support/runner.ts';

const deps = { clock: systemClock, log: silentLogger, random: () => 0 };
const soon = (): number => systemClock.monotonicMs() + 1_000;
const never = async (): Promise<void> => await new Promise(() => undefined);

/** A part that notes what happens to it. */
function noted(
  events: string[],
  name: string,
  faults: { start?: WarrenError; stop?: WarrenError } = {},
): { name: string; part: Part } {
  let isUp = false;
  return {
    name,
    part: {
      async start(): Promise<void> {
        if (isUp) return;
        isUp = true;
        events.push(`${name} up`);
        if (faults.start !== undefined) throw faults.start;
        await Promise.resolve();
      },
      async stop(): Promise<void> {
        if (!isUp) return;
        isUp = false;
        events.push(`${name} down`);
        if (faults.stop !== undefined) throw faults.stop;
        await Promise.resolve();
      },
    },
  };
}

describe('parts in order', () => {
  test('start from the bottom and stop from the top', async () => {
    const events: string[] = [];
    const part = inOrder([noted(events, 'top'), noted(events, 'bottom')], deps);
    await part.stop(soon());
    await part.start();
    await part.start();
    await part.stop(soon());
    await part.stop(soon());
    expect(events).toEqual(['bottom up', 'top up', 'top down', 'bottom down']);
  });

  test('stop what has started when one cannot start, and say what it was', async () => {
    const events: string[] = [];
    const fault = new WarrenError('database-unavailable');
    const part = inOrder(
      [noted(events, 'top'), noted(events, 'middle', { start: fault }), noted(events, 'bottom')],
      deps,
    );
    await expect(part.start()).rejects.toBe(fault);
    expect(events).toEqual(['bottom up', 'middle up', 'middle down', 'bottom down']);
  });

  test('stop all of them although one fails to', async () => {
    const events: string[] = [];
    const lines: LoggedLine[] = [];
    const part = inOrder(
      [noted(events, 'top', { stop: new WarrenError('database-unavailable') }), noted(events, 'bottom')],
      { ...deps, log: listLogger(lines) },
    );
    await part.start();
    await part.stop(soon());
    expect(events.slice(2)).toEqual(['top down', 'bottom down']);
    expect(lines).toMatchObject([{ level: 'error', fields: { part: 'top' } }]);
  });

  test('stop all of them although one never ends to stop, and say which', async () => {
    const events: string[] = [];
    const lines: LoggedLine[] = [];
    const stuck: Part = { start: async () => await Promise.resolve(), stop: never };
    const part = inOrder([noted(events, 'top'), { name: 'stuck', part: stuck }, noted(events, 'bottom')], {
      ...deps,
      log: listLogger(lines),
    });
    await part.start();
    await part.stop(systemClock.monotonicMs() - 1_000);
    expect(events.slice(2)).toEqual(['top down', 'bottom down']);
    expect(lines).toMatchObject([{ level: 'warn', message: 'part did not stop in time', fields: { part: 'stuck' } }]);
  });

  test('start nothing more once they are stopped half-way up', async () => {
    const events: string[] = [];
    let reach: () => void = () => undefined;
    const slow: Part = {
      start: async () => await new Promise<void>((resolve) => (reach = resolve)),
      stop: async () => await Promise.resolve(),
    };
    const part = inOrder([noted(events, 'top'), { name: 'slow', part: slow }, noted(events, 'bottom')], deps);
    const starting = part.start();
    await eventually(() => expect(events).toEqual(['bottom up']), { everyMs: 1 });
    await part.stop(soon());
    reach();
    await starting;
    expect(events).toEqual(['bottom up', 'bottom down']);
  });
});

describe('a loop', () => {
  test('may be started twice, stopped twice, and stopped before its start', async () => {
    let rounds = 0;
    const round = async (): Promise<void> => {
      rounds += 1;
      await Promise.resolve();
    };
    const loop = new Loop({ ...deps, round }, { name: 'test', intervalMs: 1 });
    await loop.start();
    await loop.start();
    await eventually(() => expect(rounds).toBeGreaterThan(2), { everyMs: 1 });
    await loop.stop(soon());
    const atStop = rounds;
    await loop.stop(soon());
    expect(rounds).toBe(atStop);

    const stopped = new Loop({ ...deps, round }, { name: 'test', intervalMs: 1 });
    await stopped.stop(soon());
  });

  test('does the next round at once while more waits, and when it is woken', async () => {
    let rounds = 0;
    const loop = new Loop(
      {
        ...deps,
        round: async () => {
          rounds += 1;
          return await Promise.resolve(rounds < 5);
        },
      },
      { name: 'test', intervalMs: 3_600_000 },
    );
    await loop.start();
    await eventually(() => expect(rounds).toBe(5), { everyMs: 1 });
    loop.wake();
    await eventually(() => expect(rounds).toBe(6), { everyMs: 1 });
    await loop.stop(soon());
  });

  test('goes on after rounds that fail, with ever longer pauses', async () => {
    const pauses: number[] = [];
    const clock = {
      ...systemClock,
      sleep: async (ms: number): Promise<void> => {
        pauses.push(ms);
        await Promise.resolve();
      },
    };
    let rounds = 0;
    const loop: Loop = new Loop(
      {
        ...deps,
        clock,
        round: async () => {
          rounds += 1;
          if (rounds === 8) void loop.stop(soon());
          if (rounds < 7) throw new WarrenError('database-unavailable');
          await Promise.resolve();
        },
      },
      { name: 'test', intervalMs: 10 },
    );
    await loop.start();
    await eventually(() => expect(rounds).toBe(8), { everyMs: 1 });
    expect(pauses.slice(0, 7)).toEqual([20, 40, 80, 160, 160, 160, 10]);
  });

  test('logs failures in a row less and less often, and the first one after a success again', async () => {
    const lines: LoggedLine[] = [];
    let rounds = 0;
    const round = async (): Promise<boolean> => {
      rounds += 1;
      if (rounds === 21) return await Promise.resolve(false);
      throw new WarrenError('database-unavailable');
    };
    const clock = { ...systemClock, sleep: async () => await Promise.resolve() };
    const loop: Loop = new Loop(
      {
        ...deps,
        clock,
        log: listLogger(lines),
        round: async () => {
          if (rounds === 22) void loop.stop(soon());
          return await round();
        },
      },
      { name: 'test', intervalMs: 1 },
    );
    await loop.start();
    await eventually(() => expect(rounds).toBeGreaterThanOrEqual(22), { everyMs: 1 });
    await loop.stop(soon());
    const told = lines.map(({ fields }) => fields['failuresInRow']);
    expect(told.slice(0, 6)).toEqual([1, 2, 4, 8, 16, 1]);
  });

  test('tells its name at each round that failed', async () => {
    const failed: string[] = [];
    const round = async (): Promise<void> => await Promise.reject(new Error('away'));
    const loop = new Loop(
      { ...deps, round, onFailure: (name) => failed.push(name) },
      { name: 'failing', intervalMs: 1 },
    );
    await loop.start();
    await eventually(() => expect(failed.slice(0, 2)).toEqual(['failing', 'failing']), { everyMs: 1 });
    await loop.stop(soon());
  });

  test('tells its round to stop, and waits for it, but not beyond the deadline', async () => {
    const loop = new Loop(
      { ...deps, round: async (signal) => await systemClock.sleep(3_600_000, signal) },
      { name: 'test', intervalMs: 1 },
    );
    await loop.start();
    await loop.stop(soon());

    const lines: LoggedLine[] = [];
    const stuck = new Loop({ ...deps, log: listLogger(lines), round: never }, { name: 'stuck', intervalMs: 1 });
    await stuck.start();
    await stuck.stop(systemClock.monotonicMs() + 20);
    expect(lines).toMatchObject([{ level: 'warn', fields: { loop: 'stuck' } }]);
  });
});
