import { monitorEventLoopDelay } from 'node:perf_hooks';
import { describe, expect, test } from '@jest/globals';
import { codeOf, toError } from '../../../../shared/errors/to-error.ts';
import { Breakers, DEFAULT_BREAKER } from '../../../../shared/resilience/breaker.ts';
import type { BreakerOptions, BreakersDeps } from '../../../../shared/resilience/breaker.ts';
import { systemClock } from '../../../../shared/time/clock.ts';
import { eventually } from '../../../support/eventually.ts';

interface Dependency {
  isUp: boolean;
  calls: number;
}

const refused = (): Promise<never> => Promise.reject(new Error('refused'));

function open(options: Partial<BreakerOptions> = {}, deps: Partial<BreakersDeps> = {}): Breakers & Disposable {
  const breakers = new Breakers(
    { clock: systemClock, random: () => 0, isFailure: () => true, ...deps },
    { ...DEFAULT_BREAKER, ...options },
  );
  return Object.assign(breakers, { [Symbol.dispose]: () => breakers.stop() });
}

const codeOfRun = async (breakers: Breakers, fn: () => Promise<unknown>, name = 'smtp'): Promise<string> =>
  await breakers.run(name, fn).then(
    () => 'ok',
    (thrown: unknown) => codeOf(thrown) ?? toError(thrown).message,
  );

const halfOpen = (breakers: Breakers): Promise<void> =>
  eventually(() => {
    expect(breakers.states().get('smtp')).toBe('half-open');
  });

describe('a breaker', () => {
  test('stays closed below its volume, whatever fails, and opens at it', async () => {
    using breakers = open({ volumeThreshold: 10 });
    for (let call = 1; call < 10; call += 1) expect(await codeOfRun(breakers, refused)).toBe('refused');
    expect(breakers.states().get('smtp')).toBe('closed');
    expect(await codeOfRun(breakers, refused)).toBe('refused');
    expect(breakers.states().get('smtp')).toBe('open');
    expect(await codeOfRun(breakers, refused)).toBe('breaker-open');
  });

  test('stays closed at half failures, so that one lucky probe does not make it flap', async () => {
    using breakers = open({ volumeThreshold: 10 });
    for (let call = 0; call < 40; call += 1) {
      await codeOfRun(breakers, call % 2 === 0 ? () => Promise.resolve() : refused);
    }
    expect(breakers.states().get('smtp')).toBe('closed');
  });

  test('knows no other: each name has its own', async () => {
    using breakers = open({ volumeThreshold: 1 });
    await codeOfRun(breakers, refused, 'one');
    expect(await codeOfRun(breakers, () => Promise.resolve(), 'other')).toBe('ok');
    expect(await codeOfRun(breakers, () => Promise.resolve(), 'one')).toBe('breaker-open');
    expect(await codeOfRun(breakers, () => Promise.resolve(), '__proto__')).toBe('ok');
  });

  test('does not hold answers against a dependency that are the caller’s fault', async () => {
    using breakers = open({ volumeThreshold: 2 }, { isFailure: (thrown) => toError(thrown).message !== 'not found' });
    for (let call = 0; call < 20; call += 1) {
      expect(await codeOfRun(breakers, () => Promise.reject(new Error('not found')))).toBe('not found');
    }
    expect(breakers.states().get('smtp')).toBe('closed');
  });

  test('passes thrown values on that are no errors', async () => {
    using breakers = open();
    // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- callers can throw anything
    await expect(breakers.run('x', () => Promise.reject(undefined))).rejects.toBeUndefined();
    await expect(
      breakers.run('x', () => {
        throw new Error('sync');
      }),
    ).rejects.toThrow('sync');
  });

  test('stays closed when the very first call takes too long, and below its volume whatever takes too long', async () => {
    using breakers = open({ volumeThreshold: 5, callTimeoutMs: 5 });
    const hang = (): Promise<never> => new Promise(() => undefined);
    for (let call = 1; call < 5; call += 1) expect(await codeOfRun(breakers, hang)).toBe('ETIMEDOUT');
    expect(breakers.states().get('smtp')).toBe('closed');
    expect(await codeOfRun(breakers, hang)).toBe('ETIMEDOUT');
    expect(breakers.states().get('smtp')).toBe('open');
  });

  test('closes after every outage, over 200 cycles of 100 failures at once', async () => {
    using breakers = open({ volumeThreshold: 5, resetTimeoutMs: 5 });
    const dependency: Dependency = { isUp: false, calls: 0 };
    const call = async (): Promise<void> => {
      dependency.calls += 1;
      await systemClock.sleep(0);
      if (!dependency.isUp) throw new Error('down');
    };
    for (let cycle = 0; cycle < 200; cycle += 1) {
      dependency.isUp = false;
      await Promise.all(Array.from({ length: 100 }, () => codeOfRun(breakers, call)));
      expect(breakers.states().get('smtp')).not.toBe('closed');
      dependency.isUp = true;
      let answer = '';
      for (let tries = 0; tries < 200 && answer !== 'ok'; tries += 1) {
        await systemClock.sleep(2);
        answer = await codeOfRun(breakers, call);
      }
      expect(answer).toBe('ok'); // within its reset time and 400 ms
      // and stays closed: one failure after the recovery does not open it again
      dependency.isUp = false;
      expect(await codeOfRun(breakers, call)).toBe('down');
      dependency.isUp = true;
      expect(await codeOfRun(breakers, call)).toBe('ok');
    }
  });

  test('half-opens although its callers loop without a pause', async () => {
    const states: string[] = [];
    using breakers = open(
      { volumeThreshold: 3, resetTimeoutMs: 20 },
      { onState: (_name, state) => states.push(state) },
    );
    for (let call = 0; call < 1_000_000 && states.filter((state) => state === 'half-open').length < 2; call += 1) {
      await codeOfRun(breakers, refused);
    }
    expect(states).toEqual(['open', 'half-open', 'open', 'half-open']);
  });

  test('with a hundred callers that loop without a pause, the event loop turns nearly as it does without them', async () => {
    using breakers = open({ volumeThreshold: 3, resetTimeoutMs: 20 });
    let [calls, turns] = [0, 0];
    const during = async (ms: number, work: (over: AbortSignal) => readonly Promise<void>[]): Promise<number> => {
      const lag = monitorEventLoopDelay({ resolution: 5 });
      const over = new AbortController();
      const working = work(over.signal);
      lag.enable();
      await systemClock.sleep(ms);
      lag.disable();
      over.abort();
      await Promise.all(working);
      return lag.percentile(99) / 1e6;
    };
    const callAgainAndAgain = async (over: AbortSignal): Promise<void> => {
      for (; !over.aborted; calls += 1) await codeOfRun(breakers, refused);
    };
    const turn = async (over: AbortSignal): Promise<void> => {
      for (; !over.aborted; turns += 1) await new Promise(setImmediate);
    };
    const CALLERS = 100;
    const excessMs: number[] = [];
    // A machine that is busy with something else says nothing about the breaker: the best of five counts.
    for (let round = 0; round < 5 && !excessMs.some((ms) => ms < 200); round += 1) {
      const idleMs = await during(300, (over) => [turn(over)]);
      [calls, turns] = [0, 0];
      const busyMs = await during(600, (over) => [
        turn(over),
        ...Array.from({ length: CALLERS }, async () => await callAgainAndAgain(over)),
      ]);
      excessMs.push(busyMs - idleMs);
    }
    expect(Math.min(...excessMs)).toBeLessThan(200);
    // Each caller gives way once a call, however fast the machine.
    expect(calls).toBeGreaterThan(CALLERS);
    expect(calls / turns).toBeLessThan(2 * CALLERS);
  });

  test('half-open, lets one call through and refuses the others', async () => {
    using breakers = open({ volumeThreshold: 1, resetTimeoutMs: 5 });
    await codeOfRun(breakers, refused);
    await halfOpen(breakers);
    let answer: () => void = () => undefined;
    const probe = codeOfRun(breakers, () => new Promise<void>((resolve) => (answer = resolve)));
    expect(await codeOfRun(breakers, () => Promise.resolve())).toBe('breaker-open');
    answer();
    expect(await probe).toBe('ok');
    expect(await codeOfRun(breakers, () => Promise.resolve())).toBe('ok');
  });

  test('aborts a call at its timeout and counts it when it ends all the same', async () => {
    const late: string[] = [];
    using breakers = open({ callTimeoutMs: 10 }, { onLateCompletion: (name) => late.push(name) });
    let end: () => void = () => undefined;
    let seen: AbortSignal | undefined;
    const call = breakers.run('slow', (signal) => {
      seen = signal;
      return new Promise<void>((resolve) => (end = resolve));
    });
    await expect(call).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    expect(seen?.aborted).toBe(true);
    end();
    await new Promise(setImmediate);
    expect(late).toEqual(['slow']);
  });

  test('does not count a call that heeds its signal as completed late', async () => {
    const late: string[] = [];
    using breakers = open({ callTimeoutMs: 10 }, { onLateCompletion: (name) => late.push(name) });
    const heeds = async (signal: AbortSignal): Promise<void> => {
      await systemClock.sleep(60_000, signal);
      signal.throwIfAborted();
    };
    await expect(breakers.run('slow', heeds)).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    await new Promise(setImmediate);
    expect(late).toEqual([]);
  });

  test('a probe that fails is refused like any other call while it is open, with its error told', async () => {
    const failures: string[] = [];
    const onProbeFailed = (name: string, thrown: unknown): number => failures.push(name, toError(thrown).message);
    using breakers = open({ volumeThreshold: 1, resetTimeoutMs: 5 }, { onProbeFailed });
    expect(await codeOfRun(breakers, refused)).toBe('refused');
    for (let probe = 0; probe < 3; probe += 1) {
      await halfOpen(breakers);
      await expect(breakers.run('smtp', refused)).rejects.toMatchObject({
        code: 'breaker-open',
        facts: { breaker: 'smtp', delayMs: expect.any(Number) },
        cause: { message: 'refused' },
      });
    }
    expect(failures).toEqual(['smtp', 'refused', 'smtp', 'refused', 'smtp', 'refused']);
  });

  test('a probe that never answers is bounded, and the next one comes', async () => {
    using breakers = open({ volumeThreshold: 1, resetTimeoutMs: 5, callTimeoutMs: 10 });
    await codeOfRun(breakers, refused);
    await halfOpen(breakers);
    let reason: unknown;
    const hang = async (signal: AbortSignal): Promise<void> => {
      await systemClock.sleep(60_000, signal);
      reason = signal.reason;
    };
    await expect(breakers.run('smtp', hang)).rejects.toMatchObject({ code: 'breaker-open' });
    expect(reason).toMatchObject({ code: 'ETIMEDOUT' });
    expect(await codeOfRun(breakers, () => Promise.resolve())).toBe('breaker-open');
    await halfOpen(breakers);
    expect(await codeOfRun(breakers, () => Promise.resolve())).toBe('ok');
  });

  test('calls cut off from outside are not held against the dependency', async () => {
    using breakers = open({ volumeThreshold: 1 });
    for (let round = 0; round < 5; round += 1) {
      const outer = new AbortController();
      const call = breakers.run(
        'x',
        async (signal) => {
          await systemClock.sleep(60_000, signal);
          signal.throwIfAborted();
        },
        outer.signal,
      );
      outer.abort(new Error('cancelled'));
      await expect(call).rejects.toThrow('cancelled');
    }
    expect(breakers.states().get('x')).toBe('closed');
  });

  test('names without end do not fill the memory', async () => {
    using breakers = open();
    for (let name = 0; name < 1_200; name += 1) await breakers.run(`user-${name}`, () => Promise.resolve());
    expect(breakers.states().size).toBe(1_000);
    expect(breakers.states().has('user-1199')).toBe(true);
  });

  test('one that is forgotten while it is open is told to be closed: its next call is let through', async () => {
    const told: string[] = [];
    using breakers = open({ volumeThreshold: 1 }, { onState: (name, state) => told.push(`${name} ${state}`) });
    await codeOfRun(breakers, refused, 'down');
    for (let name = 0; name < 1_000; name += 1) await breakers.run(`user-${name}`, () => Promise.resolve());
    expect(told).toEqual(['down open', 'down closed']);
    expect(await codeOfRun(breakers, () => Promise.resolve(), 'down')).toBe('ok');
  });
});
