/** `docs/reference/metrics.md`. */
import { renderMetricsReference } from '../../shared/observability/metrics.ts';
import { PRINTED } from './markdown.ts';

/** Prints the page. */
export function renderMetrics(): string {
  return `${[renderMetricsReference().trimEnd(), '', PRINTED].join('\n')}\n`;
}
