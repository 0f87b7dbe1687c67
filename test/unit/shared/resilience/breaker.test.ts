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

  test('L3: closes after every outage, over 40 cycles of 20 failures at once', async () => {
    using breakers = open({ volumeThreshold: 5, resetTimeoutMs: 5 });
    const dependency: Dependency = { isUp: false, calls: 0 };
    const call = async (): Promise<void> => {
      dependency.calls += 1;
      await systemClock.sleep(0);
      if (!dependency.isUp) throw new Error('down');
    };
    for (let cycle = 0; cycle < 40; cycle += 1) {
      dependency.isUp = false;
      await Promise.all(Array.from({ length: 20 }, () => codeOfRun(breakers, call)));
      expect(breakers.states().get('smtp')).not.toBe('closed');
      dependency.isUp = true;
      let answer = '';
      for (let tries = 0; tries < 200 && answer !== 'ok'; tries += 1) {
        await systemClock.sleep(2);
        answer = await codeOfRun(breakers, call);
      }
      expect(answer).toBe('ok');
      // and stays closed: one failure after the recovery does not open it again
      dependency.isUp = false;
      expect(await codeOfRun(breakers, call)).toBe('down');
      dependency.isUp = true;
      expect(await codeOfRun(breakers, call)).toBe('ok');
    }
  });

  test('L7: half-opens although its callers loop without a pause', async () => {
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

  test('H4: aborts a call at its timeout and counts it when it ends all the same', async () => {
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

  test('a probe that never answers is bounded, and the next one comes', async () => {
    using breakers = open({ volumeThreshold: 1, resetTimeoutMs: 5, callTimeoutMs: 10 });
    await codeOfRun(breakers, refused);
    await halfOpen(breakers);
    expect(await codeOfRun(breakers, () => new Promise(() => undefined))).toBe('ETIMEDOUT');
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
});
