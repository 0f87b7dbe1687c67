/** `docs/reference/metrics.md`, with what is declared and not counted yet. */
import { METRICS, renderMetricsReference } from '../../shared/observability/metrics.ts';
import { PRINTED, code } from './markdown.ts';

/** Metrics that are declared, since dashboards are made for them, and that no code counts yet. A test compares with the sources. */
export const NOT_COUNTED_YET: readonly (keyof typeof METRICS)[] = [
  'outboxRows',
  'queueReady',
  'lateCompletions',
  'leaseRenewals',
  'duePending',
  'reaped',
  'roundFailures',
  'ledgerDifference',
];

/** Prints the page. */
export function renderMetrics(): string {
  const names = NOT_COUNTED_YET.map((key) => code(METRICS[key].name));
  const gaps =
    names.length === 0
      ? []
      : ['', `Declared, but not counted yet (each stays at 0 or is absent): ${names.join(', ')}.`];
  return `${[renderMetricsReference().trimEnd(), ...gaps, '', PRINTED].join('\n')}\n`;
}
