/** What KEDA's documentation says, worked out by the module that simulates it; cases of metrics that cannot be had. */
import { expect, test } from '@jest/globals';
import { replicasForMetrics } from '../../scale-sim/hpa.ts';
import { metricOf, poll } from '../../scale-sim/keda.ts';
import type { Poll } from '../../scale-sim/keda.ts';

const FALLBACK = { failureThreshold: 3, replicas: 6 };
const QUIET: Poll = {
  atSeconds: 1_000,
  current: 0,
  minReplicaCount: 0,
  cooldownPeriod: 300,
  fallback: undefined,
  triggers: [{ reading: 0, activation: 0 }],
  lastActiveSeconds: undefined,
};
const one = (reading: number | undefined, activation = 0): Poll['triggers'] => [{ reading, activation }];

test('a trigger above its activation value scales from zero, to one or to the minimum', () => {
  expect(poll({ ...QUIET, triggers: one(1) }).replicas).toBe(1);
  expect(poll({ ...QUIET, triggers: one(1), minReplicaCount: 3 }).replicas).toBe(3);
  expect(poll({ ...QUIET, triggers: one(5, 5) }).replicas).toBe(0);
});

test('what is scaled to zero waits for the cooldown after the last trigger was active', () => {
  const idle = { ...QUIET, current: 1, lastActiveSeconds: 800 };
  expect(poll(idle).replicas).toBe(1);
  expect(poll({ ...idle, atSeconds: 1_100 }).replicas).toBe(0);
  expect(poll({ ...idle, atSeconds: 1_100, minReplicaCount: 1 }).replicas).toBe(1);
});

test('three failures in a row stand for the replicas of the fallback', () => {
  expect(metricOf(undefined, 10, 2, FALLBACK).value).toBeUndefined();
  const fallen = metricOf(undefined, 10, 3, FALLBACK);
  expect(fallen.value).toBe(60);
  expect(replicasForMetrics(2, [fallen])).toBe(6);
  expect(metricOf(7, 10, 9, FALLBACK).value).toBe(7);
});

test('while its metrics are lost a fleet never drops to zero, with a fallback or without', () => {
  const lost = { ...QUIET, current: 4, lastActiveSeconds: 0, triggers: one(undefined) };
  expect(poll(lost).replicas).toBe(4);
  expect(poll({ ...lost, fallback: FALLBACK }).replicas).toBe(6);
  expect(replicasForMetrics(4, [metricOf(undefined, 1, 99, undefined)])).toBe(4);
});
