/** `warren queue …`, against answers that the test gives. */
import { expect, test } from '@jest/globals';
import { answering, jsonAnswer, problem, sleepingClock, warren } from '../../support/cli-io.ts';

test('list shows how queues stand, with who and why', async () => {
  const { fetch } = answering(
    jsonAnswer({
      items: [
        { name: 'default', taskTypes: [], mode: 'open', running: 3, ready: 12, holdsBack: false },
        {
          name: 'mail',
          taskTypes: [],
          mode: 'paused',
          modeReason: 'provider \u001b[31mdown',
          modeBy: 'ann',
          modeSince: '2026-05-01T09:00:00.000Z',
          running: 0,
          holdsBack: true,
          fairness: { key: 'input.tenant', weights: {}, depth: 100, waiting: 400 },
        },
      ],
    }),
  );
  const { stdout, exitCode } = await warren(['queue', 'list'], { fetch, clock: sleepingClock() });
  expect(exitCode).toBe(0);
  const [, first = '', second = ''] = stdout.split('\n');
  expect(first).toMatch(/^default +open +12 +3/);
  expect(second).toMatch(/^mail +paused \(holds back\) +\? +0 +.*ann +provider.* +input\.tenant \(400 wait\)/);
  expect(stdout).not.toContain('\u001b[31m');
});

test.each(['pause', 'drain', 'resume'])('%s posts the reason and says how the queue stands', async (verb) => {
  const { fetch, seen } = answering(jsonAnswer({ name: 'mail', mode: 'open', was: 'open' }));
  const run = await warren(['queue', verb, 'mail', '--reason', 'it is down'], { fetch });
  expect(run.exitCode).toBe(0);
  expect(run.stdout).toMatch(/^mail is /);
  expect([seen[0]?.method, new URL(seen[0]?.url ?? '').pathname, seen[0]?.body]).toEqual([
    'POST',
    `/v1/queues/mail/${verb}`,
    '{"reason":"it is down"}',
  ]);
});

test('a queue that there is not is told in plain words', async () => {
  const { fetch } = answering(problem('queue-not-found', 404, { queue: 'nowhere' }));
  const { exitCode, stderr } = await warren(['queue', 'pause', 'nowhere'], { fetch });
  expect(exitCode).not.toBe(0);
  expect(stderr).toMatch(/queue-not-found[\s\S]*nowhere/);
});

test('scaling tells how many workers a queue wants, why, and from what', async () => {
  const { fetch, seen } = answering(
    jsonAnswer({
      queue: 'mail',
      workersWanted: 4,
      why: '120 tasks of 2 s wait, to be started within 15 s',
      sloSeconds: 30,
      waiting: 120,
      ready: 100,
      held: 20,
      turns: 0,
      running: 20,
      arrivalPerSecond: 3.1,
      slotsPerWorker: 10,
      workers: 2,
      draining: 1,
    }),
  );
  const run = await warren(['queue', 'scaling', 'mail', '--slo', '30s', '--max', '20'], { fetch });
  expect(run.exitCode).toBe(0);
  expect(run.stdout).toBe(
    [
      'mail wants 4 workers, and has 2 and 1 on their way out',
      '  why      120 tasks of 2 s wait, to be started within 15 s',
      '  target   95 of 100 wait at most 30 s',
      '  waiting  120 (RabbitMQ 100, workers 20, turns 0)',
      '  running  20, of 10 a worker',
      '  arrivals 3.1 a second, of unknown each',
      '',
    ].join('\n'),
  );
  const { pathname, search } = new URL(seen[0]?.url ?? '');
  expect(pathname + search).toBe('/v1/scaling/mail?slo=30s&max=20');
});

test('purge cancels what waits in the queue and nothing else, whatever its name holds', async () => {
  const { fetch, seen } = answering(
    jsonAnswer({ dryRun: false, operation: 'o', cancelled: 7, requested: 0, skipped: 0, isPartial: false }),
  );
  const run = await warren(['queue', 'purge', 'mail state:running', '--reason', 'called off', '--yes'], { fetch });
  expect(run).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('7 cancelled') });
  expect(JSON.parse(seen.at(-1)?.body ?? '')).toMatchObject({
    filter: 'queue:"mail state:running" state:pending,scheduled,retrying,blocked',
    reason: 'called off',
  });
  expect((await warren(['queue', 'purge', 'mail'], { fetch })).exitCode).toBe(2);
});

test('fair sends the key, the weights and the depth, and refuses a weight that is none before it sends anything', async () => {
  const fairness = { key: 'input.tenant', weights: {}, depth: 50 };
  const { fetch, seen } = answering(jsonAnswer({ name: 'mail', fairness }));
  const args = ['queue', 'fair', 'mail', '--key', 'input.tenant'];
  const weights = ['--weight', 'acme=3', '--weight', 'a=b=2', '--weight', '__proto__=4'];
  const run = await warren([...args, ...weights, '--depth', '50'], { fetch });
  expect(run).toMatchObject({ exitCode: 0, stdout: 'mail is fair by input.tenant\n' });
  expect(seen[0]?.body).toBe('{"key":"input.tenant","weights":{"acme":3,"a=b":2,"__proto__":4},"depth":50}');
  for (const wrong of ['acme', 'acme=', 'acme=0', 'acme=101', 'acme=x']) {
    expect((await warren([...args, '--weight', wrong], { fetch })).exitCode).toBe(2);
  }
  expect(seen).toHaveLength(1);
});
