/** Reads a ScaledObject as KEDA would, as far as it is simulated. What it does not know it refuses: a figure must not come from less. */
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { DEFAULT_BEHAVIOR } from './hpa.ts';
import type { Behavior, ScalingRules } from './hpa.ts';

const seconds = z.int().min(0);
const policy = z.strictObject({
  type: z.enum(['Pods', 'Percent']),
  value: z.int().min(1),
  periodSeconds: z.int().min(1).max(1_800),
});
const rules = z.strictObject({
  stabilizationWindowSeconds: z.int().min(0).max(3_600).optional(),
  policies: z.array(policy).optional(),
  selectPolicy: z.enum(['Max', 'Min', 'Disabled']).optional(),
});
const number = z.string().regex(/^\d+(\.\d+)?$/);
const authenticationRef = z.looseObject({ name: z.string() }).optional();
const common = { name: z.string().optional(), authenticationRef, metricType: z.literal('AverageValue').optional() };

const rabbitmq = z.strictObject({
  ...common,
  type: z.literal('rabbitmq'),
  metadata: z.looseObject({
    protocol: z.literal('http'),
    mode: z.literal('QueueLength'),
    queueName: z.string(),
    value: number,
    activationValue: number.optional(),
    excludeUnacknowledged: z.literal('false').optional(),
  }),
});
const metricsApi = z.strictObject({
  ...common,
  type: z.literal('metrics-api'),
  metadata: z.looseObject({
    url: z.url(),
    valueLocation: z.string(),
    targetValue: number,
    activationTargetValue: number.optional(),
  }),
});

const spec = z.strictObject({
  scaleTargetRef: z.looseObject({ name: z.string() }),
  pollingInterval: seconds.default(30),
  cooldownPeriod: seconds.default(300),
  minReplicaCount: z.int().min(0).default(0),
  maxReplicaCount: z.int().min(1).default(100),
  fallback: z.strictObject({ failureThreshold: z.int().min(1), replicas: z.int().min(0) }).optional(),
  advanced: z
    .strictObject({
      restoreToOriginalReplicaCount: z.boolean().optional(),
      horizontalPodAutoscalerConfig: z
        .strictObject({
          name: z.string().optional(),
          behavior: z.strictObject({ scaleUp: rules.optional(), scaleDown: rules.optional() }).optional(),
        })
        .optional(),
    })
    .optional(),
  triggers: z.array(z.discriminatedUnion('type', [rabbitmq, metricsApi])).min(1),
});

/** A trigger. */
export type Trigger = z.infer<typeof rabbitmq> | z.infer<typeof metricsApi>;

/** What is simulated of a ScaledObject, with defaults filled in. */
export interface ScaledObject extends Omit<z.infer<typeof spec>, 'advanced' | 'scaleTargetRef'> {
  readonly behavior: Behavior;
}

/** The first ScaledObject of a file of manifests. Throws where there is none, or where it has what is not simulated. */
export function readScaledObject(text: string): ScaledObject {
  const documents = parseAllDocuments(text).map((document) => document.toJS() as unknown);
  const found = documents.find((each) => z.looseObject({ kind: z.literal('ScaledObject') }).safeParse(each).success);
  if (found === undefined) throw new Error('there is no ScaledObject in this file');
  const { advanced, scaleTargetRef: _target, ...rest } = z.looseObject({ spec }).parse(found).spec;
  const behavior = advanced?.horizontalPodAutoscalerConfig?.behavior;
  return {
    ...rest,
    behavior: {
      scaleUp: withDefaults(behavior?.scaleUp, DEFAULT_BEHAVIOR.scaleUp),
      scaleDown: withDefaults(behavior?.scaleDown, DEFAULT_BEHAVIOR.scaleDown),
    },
  };
}

/** The figure of a pod that a trigger aims at, and the figure above which it is active. */
export function targetOf(trigger: Trigger): { readonly average: number; readonly activation: number } {
  if (trigger.type === 'rabbitmq') {
    const { value, activationValue = '0' } = trigger.metadata;
    return { average: Number(value), activation: Number(activationValue) };
  }
  const { targetValue, activationTargetValue = '0' } = trigger.metadata;
  return { average: Number(targetValue), activation: Number(activationTargetValue) };
}

function withDefaults(given: z.infer<typeof rules> | undefined, otherwise: ScalingRules): ScalingRules {
  return {
    stabilizationWindowSeconds: given?.stabilizationWindowSeconds ?? otherwise.stabilizationWindowSeconds,
    policies: given?.policies ?? otherwise.policies,
    selectPolicy: given?.selectPolicy ?? otherwise.selectPolicy,
  };
}
