import { EventEmitter } from 'node:events';
import { expect, test } from '@jest/globals';
import { loadConfig } from '../../../../shared/config/load.ts';
import { WarrenError } from '../../../../shared/errors/warren-error.ts';
import { EXIT, exitCodeOf, runService } from '../../../../shared/lifecycle/process-main.ts';
import type { ServiceContext, ServiceMain } from '../../../../shared/lifecycle/process-main.ts';
import type { Part } from '../../../../shared/lifecycle/part.ts';
import type { ProcessHost } from '../../../../shared/lifecycle/signals.ts';

class FakeHost extends EventEmitter implements ProcessHost {
  readonly argv: string[] = ['node', 'main.js'];
  written = '';
  readonly codes: number[] = [];
  readonly stderr = { write: (text: string): void => void (this.written += text) };
  exit(code: number): void {
    this.codes.push(code);
  }
}

const env = { WARREN_LOG_LEVEL: 'silent', WARREN_WORKER_DRAIN_MS: '0' };

function aMain(part: Partial<Part>, more: Partial<ServiceMain> = {}): ServiceMain & { context: () => ServiceContext } {
  let seen: ServiceContext | undefined;
  return {
    name: 'test',
    load: (file) => loadConfig({ user: 'worker', env, file }),
    create: (context) => {
      seen = context;
      return {
        part: { start: async () => await Promise.resolve(), stop: async () => await Promise.resolve(), ...part },
      };
    },
    context: () => seen as ServiceContext,
    ...more,
  };
}

test('a signal stops the parts and exits with 0', async () => {
  const host = new FakeHost();
  let stops = 0;
  const running = runService(
    aMain({
      start: async () => {
        host.emit('SIGTERM');
        await Promise.resolve();
      },
      stop: async () => {
        stops += 1;
        await Promise.resolve();
      },
    }),
    host,
  );
  await running;
  expect([stops, host.codes]).toEqual([1, [EXIT.ok]]);
  expect(host.listenerCount('SIGTERM')).toBe(0);
});

test('a second signal exits at once', async () => {
  const host = new FakeHost();
  await runService(
    aMain({
      start: async () => {
        host.emit('SIGTERM');
        host.emit('SIGINT');
        await Promise.resolve();
      },
    }),
    host,
  );
  expect(host.codes[0]).toBe(130);
});

test('faults of the configuration are all written, and the exit code is 78', async () => {
  const host = new FakeHost();
  await runService(
    aMain({}, { load: () => loadConfig({ user: 'worker', env: { WARREN_PREFIX: 'A B', WARREN_LIMITS_DEPTH: 'x' } }) }),
    host,
  );
  expect(host.codes).toEqual([EXIT.config]);
  expect(host.written.split('\n')).toEqual([
    'The configuration has faults:',
    expect.stringContaining('  prefix'),
    expect.stringContaining('  limits.depth'),
    '',
  ]);
});

test('--config names the file', async () => {
  const files: (string | undefined)[] = [];
  for (const words of [['--config', 'a.json'], ['--config=b.json'], []]) {
    const host = new FakeHost();
    host.argv.push(...words);
    await runService(
      aMain(
        {
          start: async () => {
            host.emit('SIGINT');
            await Promise.resolve();
          },
        },
        {
          load: (file) => {
            files.push(file);
            return loadConfig({ user: 'worker', env });
          },
        },
      ),
      host,
    );
  }
  expect(files).toEqual(['a.json', 'b.json', undefined]);
});

test('what nobody handled stops the service and exits with 70', async () => {
  const host = new FakeHost();
  let stops = 0;
  await runService(
    aMain({
      start: async () => {
        host.emit('unhandledRejection', new Error('lost'));
        await Promise.resolve();
      },
      stop: async () => {
        stops += 1;
        await Promise.resolve();
      },
    }),
    host,
  );
  expect([stops, host.codes]).toEqual([1, [EXIT.internal]]);
});

test('a service can ask to be started anew', async () => {
  const host = new FakeHost();
  const main = aMain({
    start: async () => {
      main.context().requestStop(EXIT.temporary, 'too many abandoned handlers');
      await Promise.resolve();
    },
  });
  await runService(main, host);
  expect(host.codes).toEqual([EXIT.temporary]);
});

test('a stop that does not end is ended, with 70', async () => {
  const host = new FakeHost();
  await runService(
    aMain(
      {
        start: async () => {
          host.emit('SIGTERM');
          await Promise.resolve();
        },
        stop: async () => await new Promise(() => undefined),
      },
      { stopWithinMs: () => -1_990 },
    ),
    host,
  );
  expect(host.codes).toEqual([EXIT.internal]);
});

test.each([
  [new WarrenError('database-unavailable'), EXIT.unavailable],
  [new WarrenError('broker-unavailable'), EXIT.unavailable],
  [new WarrenError('database-outdated'), EXIT.config],
  [new WarrenError('prefix-mismatch'), EXIT.config],
  [new WarrenError('topology-drift'), EXIT.config],
  [Object.assign(new Error('taken'), { code: 'EADDRINUSE' }), EXIT.config],
  [new Error('bug'), EXIT.internal],
])('a start that fails with %s exits with %i', async (thrown, code) => {
  const host = new FakeHost();
  await runService(aMain({ start: async () => await Promise.reject(thrown) }), host);
  expect(host.codes).toEqual([code]);
  expect(exitCodeOf(thrown)).toBe(code);
});
