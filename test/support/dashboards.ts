/** The dashboards of the repository, read as Grafana reads them. */
import { listFiles, readSource } from './source-files.ts';

/** A dashboard, as far as tests look at it. */
export interface DashboardJson {
  readonly uid: string;
  readonly title: string;
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly type: string; readonly query: unknown }[];
  };
  readonly panels: readonly {
    readonly id: number;
    readonly title: string;
    readonly description: string;
    readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
    readonly datasource: unknown;
    readonly targets: readonly { readonly datasource: unknown; readonly expr: string; readonly legendFormat: string }[];
  }[];
}

/** All of them. */
export const dashboards: readonly DashboardJson[] = listFiles('deploy/grafana/dashboards').map(
  (path) => JSON.parse(readSource(path)) as DashboardJson,
);

/** The queries of a dashboard; `plain` without variables, as Prometheus takes it. */
export function queriesOf(
  dashboard: DashboardJson,
): readonly { readonly expr: string; readonly legend: string; readonly plain: string }[] {
  return dashboard.panels.flatMap(({ targets }) =>
    targets.map(({ expr, legendFormat }) => ({
      expr,
      legend: legendFormat,
      plain: expr.replaceAll('$__rate_interval', '5m').replaceAll(/\$\w+/g, '.*'),
    })),
  );
}
