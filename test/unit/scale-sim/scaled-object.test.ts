/** What is read of a ScaledObject, and what a run's replicas come to. */
import { expect, test } from '@jest/globals';
import { readSource } from '../../support/source-files.ts';
import { replicaFigures, timeline } from '../../scale-sim/figures.ts';
import { DEFAULT_BEHAVIOR } from '../../scale-sim/hpa.ts';
import { LOADS, tasksBetween } from '../../scale-sim/loads.ts';
import { readScaledObject, targetOf } from '../../scale-sim/scaled-object.ts';

const SHIPPED = readSource('test/scale-sim/scaled-object.yaml');

test('the ScaledObject is read as KEDA takes it, with its defaults', () => {
  const object = readScaledObject(SHIPPED);
  expect(object).toMatchObject({
    pollingInterval: 10,
    cooldownPeriod: 300,
    fallback: { failureThreshold: 3, replicas: 2 },
  });
  expect(object.behavior.scaleDown.policies).toHaveLength(2);
  expect(object.triggers.map((trigger) => [trigger.type, targetOf(trigger)])).toEqual([
    ['rabbitmq', { average: 20, activation: 0 }],
    ['metrics-api', { average: 1, activation: 0 }],
  ]);
  const bare = readScaledObject(SHIPPED.replace(/ {2}advanced:[\s\S]*? {2}triggers:/, '  triggers:'));
  expect(bare.behavior).toEqual(DEFAULT_BEHAVIOR);
});

test('another document of the file is passed over; what is not simulated is refused, and so is a file without one', () => {
  const secret = 'apiVersion: v1\nkind: Secret\n---\n';
  expect(readScaledObject(secret + SHIPPED).maxReplicaCount).toBe(10);
  expect(() => readScaledObject(secret)).toThrow('no ScaledObject');
  expect(() => readScaledObject(SHIPPED.replace('protocol: http', 'protocol: amqp'))).toThrow('protocol');
  expect(() => readScaledObject(SHIPPED.replace('pollingInterval', 'idleReplicaCount: 0\n  pollingInterval'))).toThrow(
    'idleReplicaCount',
  );
});

test('a shipped ScaledObject never scales to none, and counts what is unacknowledged', () => {
  const { minReplicaCount, fallback, triggers } = readScaledObject(SHIPPED);
  expect(minReplicaCount).toBeGreaterThanOrEqual(1);
  expect(fallback?.replicas).toBeGreaterThanOrEqual(1);
  const queue = triggers.find(({ type }) => type === 'rabbitmq');
  expect(queue?.metadata).toMatchObject({ protocol: 'http', excludeUnacknowledged: 'false' });
});

test('loads come in as their words say, however time is cut', () => {
  for (const load of LOADS) {
    const whole = Array.from({ length: 4_200 }, (_, n) => tasksBetween(load, n / 10, (n + 1) / 10));
    const coarse = Array.from({ length: 420 }, (_, n) => tasksBetween(load, n, n + 1));
    const sum = (tasks: readonly number[]): number => tasks.reduce((total, each) => total + each, 0);
    expect(Math.abs(sum(whole) - sum(coarse)) / sum(whole)).toBeLessThan(0.02);
    expect(tasksBetween(load, load.seconds, load.seconds + 100)).toBe(0);
    expect([load.takes(0) > 0, load.takes(1) > load.takes(0)]).toEqual([true, true]);
  }
});

test('a worker that is taken away and wanted again within a minute is a flap; later it is none', () => {
  const moments = (...replicas: readonly (readonly [number, number])[]) =>
    replicas.map(([atSeconds, desired]) => ({ atSeconds, desired, ready: desired }));
  const flapping = moments([0, 1], [15, 3], [30, 2], [60, 3], [200, 3]);
  expect(replicaFigures(flapping)).toMatchObject({ changes: 3, flaps: 2, most: 3 });
  expect(replicaFigures(moments([0, 1], [15, 3], [90, 2], [180, 2])).flaps).toBe(0);
  expect(replicaFigures(moments([0, 2], [10, 4], [20, 4])).mean).toBeCloseTo(3);
  expect(timeline(flapping, 30)).toBe('1 2 3 3 3 3 3');
});
