/** Makes Grafana's JSON out of titles and queries: panels are set beside each other in their order, 24 columns wide. */

/** A query of a panel. */
export interface Query {
  /** PromQL. */
  readonly expr: string;
  /** Name of its lines, with `{{label}}`. */
  readonly legend: string;
}

/** A panel. */
export interface Panel {
  readonly title: string;
  /** What it shows, and what is worth a look: for whoever sees it for the first time. */
  readonly about: string;
  readonly kind: 'stat' | 'timeseries' | 'table';
  /** Grafana's name of a unit: `short`, `s`, `ops`, `percentunit`, `bytes`. */
  readonly unit: string;
  readonly queries: readonly Query[];
  /** A stat turns red from this value on, in the unit of the panel. */
  readonly badFrom?: number;
}

/** A dashboard. */
export interface Dashboard {
  /** Name of its file, and the end of its id. */
  readonly name: string;
  readonly title: string;
  /** Labels to choose by: the variable of that name takes its values from the metric. */
  readonly variables: readonly { readonly label: string; readonly metric: string }[];
  readonly panels: readonly Panel[];
}

const COLUMNS = 24;
const SIZES = {
  stat: { w: 4, h: 4 },
  timeseries: { w: 12, h: 8 },
  table: { w: 24, h: 8 },
} as const;
const SCHEMA_VERSION = 39;
const SOURCE = { type: 'prometheus', uid: '${datasource}' } as const;

/** The JSON that Grafana imports; the source of data is a variable, so that it asks for none. */
export function renderDashboard({ name, title, variables, panels }: Dashboard): string {
  const dashboard = {
    uid: `warren-${name}`,
    title,
    tags: ['warren'],
    schemaVersion: SCHEMA_VERSION,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-3h', to: 'now' },
    timezone: 'browser',
    links: [
      { type: 'dashboards', tags: ['warren'], title: 'Warren', asDropdown: false, includeVars: true, keepTime: true },
    ],
    annotations: { list: [] },
    templating: { list: [{ name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus' }] },
    panels: placed(panels),
  };
  const chosen = variables.map(({ label, metric }) => ({
    name: label,
    label,
    type: 'query',
    datasource: SOURCE,
    query: { query: `label_values(${metric}, ${label})`, refId: label },
    refresh: 2,
    sort: 1,
    multi: true,
    includeAll: true,
    allValue: '.*',
    current: { text: 'All', value: '$__all' },
  }));
  const templating = { list: [...dashboard.templating.list, ...chosen] };
  return `${JSON.stringify({ ...dashboard, templating }, null, 2)}\n`;
}

function placed(panels: readonly Panel[]): readonly unknown[] {
  let [x, y, height] = [0, 0, 0];
  return panels.map((panel, index) => {
    const { w, h } = SIZES[panel.kind];
    if (x + w > COLUMNS || (height !== 0 && h !== height)) [x, y, height] = [0, y + height, 0];
    const gridPos = { x, y, w, h };
    [x, height] = [x + w, h];
    return renderPanel(panel, index + 1, gridPos);
  });
}

function renderPanel({ title, about, kind, unit, queries, badFrom }: Panel, id: number, gridPos: unknown): unknown {
  const steps = [{ color: 'green', value: null }, ...(badFrom === undefined ? [] : [{ color: 'red', value: badFrom }])];
  return {
    id,
    type: kind,
    title,
    description: about,
    gridPos,
    datasource: SOURCE,
    fieldConfig: {
      defaults: { unit, min: 0, thresholds: { mode: 'absolute', steps } },
      overrides: [],
    },
    options: OPTIONS[kind],
    targets: queries.map(({ expr, legend }, index) => ({
      refId: String.fromCodePoint('A'.codePointAt(0)! + index),
      datasource: SOURCE,
      expr,
      legendFormat: legend,
      ...(kind === 'timeseries' ? { range: true } : { instant: true, range: false }),
      ...(kind === 'table' ? { format: 'table' } : {}),
    })),
  };
}

const OPTIONS = {
  stat: { reduceOptions: { calcs: ['lastNotNull'] }, colorMode: 'value', graphMode: 'none' },
  timeseries: {
    legend: { displayMode: 'list', placement: 'bottom' },
    tooltip: { mode: 'multi', sort: 'desc' },
  },
  table: { showHeader: true },
} as const;
