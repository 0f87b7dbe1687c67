/** Reads of a PromQL expression which metrics it asks for, with which labels and values; what is no metric of Warren is asked of the process. */
import { createMetrics } from '../../shared/observability/metrics.ts';
import { METRICS } from '../../shared/observability/metrics-declared.ts';
import type { Labels } from '../../shared/observability/metrics-declared.ts';

/** Labels that Prometheus itself adds. */
const OF_PROMETHEUS = ['instance', 'job', 'le', 'alertname', 'alertstate', 'severity'];
const NAME = /\b(?:warren|process|nodejs)_\w+/g;

const declared = new Map<string, Labels>(Object.values(METRICS).map(({ name, labels }) => [name, labels]));
const kinds = new Map<string, string>(Object.values(METRICS).map(({ name, kind }) => [name, kind]));
const processText = await createMetrics({ service: 'test', version: '1', withProcess: true }).render();

/** What is wrong with the metrics and labels of an expression: names that there are not, labels that they have not. */
export function faultsOf(expression: string): readonly string[] {
  const faults: string[] = [];
  const bare = expression.replaceAll(/"[^"]*"/g, (text) => '_'.repeat(text.length));
  const labelsOfAll = new Set(OF_PROMETHEUS);
  for (const { 0: written, index } of bare.matchAll(NAME)) {
    if (bare[index - 1] === ':') continue; // of a recording rule
    const labels = labelsOf(written);
    if (labels === undefined) {
      faults.push(`there is no metric ${written}`);
      continue;
    }
    for (const { name } of labels) labelsOfAll.add(name);
    const [, matchers = ''] = /^\{([^}]*)\}/.exec(expression.slice(index + written.length)) ?? [];
    for (const [, label = '', value = ''] of matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"/g)) {
      const found = labels.find(({ name }) => name === label);
      if (found === undefined && !OF_PROMETHEUS.includes(label)) faults.push(`${written} has no label ${label}`);
      const unknown = value.split('|').filter((each) => found?.values?.includes(each) === false);
      if (unknown.length > 0 && !value.startsWith('$'))
        faults.push(`${label} of ${written} is never ${unknown.join(', ')}`);
    }
  }
  for (const [, list = ''] of bare.matchAll(/\b(?:by|on)\s*\(([\w, ]*)\)/g)) {
    for (const label of list.split(/,\s*/).filter(Boolean)) {
      if (!labelsOfAll.has(label)) faults.push(`nothing here has the label ${label}`);
    }
  }
  return faults;
}

/** The labels of a metric, of a histogram under the names of its parts as well; `undefined` where there is none of that name. */
function labelsOf(written: string): Labels | undefined {
  const histogram = written.replace(/_(?:bucket|sum|count)$/, '');
  if (kinds.get(histogram) === 'histogram') return declared.get(histogram);
  const labels = declared.get(written);
  if (labels !== undefined) return labels;
  const isOfProcess = !written.startsWith('warren_') && processText.includes(`# TYPE ${histogram} `);
  return isOfProcess ? [{ name: 'type' }, { name: 'kind' }, { name: 'space' }] : undefined;
}
