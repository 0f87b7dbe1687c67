/** Shows the configuration: effective values without secrets, and the reference page. */
import type { Setting } from './format.ts';
import { listSettings } from './schema.ts';
import type { Source } from './schema.ts';
import type { LoadedConfig } from './load.ts';

/** One setting as `warren config print` shows it. */
export interface ShownSetting {
  readonly path: string;
  /** The value; a secret as text without what is secret. */
  readonly value: unknown;
  readonly source: Source;
}

/** Every setting with its effective value and its source, secrets masked. */
export function describeConfig({ config, sources }: LoadedConfig): readonly ShownSetting[] {
  return listSettings().map(({ path, setting }) => {
    const value = path.split('.').reduce((at: unknown, name) => (at as Record<string, unknown>)[name], config);
    return { path, value: setting.sensitive ? mask(setting, value) : value, source: sources.get(path) ?? 'default' };
  });
}

/** The lines of `warren config print`. */
export function renderConfig(loaded: LoadedConfig): string {
  return describeConfig(loaded)
    .map(
      ({ path, value, source }) =>
        `${path} = ${typeof value === 'string' ? value : JSON.stringify(value)}  (${source})`,
    )
    .join('\n');
}

/** `docs/reference/config.md`. */
export function renderConfigReference(): string {
  const lines = [
    '# Configuration',
    '',
    'For whoever runs Warren. Values come from, the last one wins: the defaults, the JSON file that `--config` or',
    '`WARREN_CONFIG` names (`{"amqp": {"heartbeatSeconds": 10}}`), the environment. A variable set to nothing counts as',
    'absent. A secret can also be read from a file: the variable with `_FILE` behind its name holds the path. A process',
    'that finds faults lists all of them and exits with 78. `warren config print` shows what is in force, and from where.',
  ];
  let group: string | undefined;
  for (const { path, env, setting } of listSettings()) {
    const own = path.includes('.') ? path.slice(0, path.indexOf('.')) : 'General';
    if (own !== group) {
      group = own;
      lines.push('', `## ${own}`, '', '| setting | variable | default | allowed | meaning |', '|---|---|---|---|---|');
    }
    const cells = [
      `\`${path}\``,
      `\`${env}\`${setting.sensitive ? ` or \`${env}_FILE\`` : ''}`,
      renderDefault(setting),
      setting.allowed,
      setting.sensitive ? `${setting.doc} Secret.` : setting.doc,
    ];
    lines.push(`| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`);
  }
  return `${lines.join('\n')}\n`;
}

function mask(setting: Setting<unknown>, value: unknown): string {
  return setting.mask === undefined ? '***' : setting.mask(value);
}

function renderDefault(setting: Setting<unknown>): string {
  const { default: value } = setting;
  if (Array.isArray(value) && value.length === 0) return 'none';
  if (value === '') return 'empty';
  if (setting.sensitive && typeof value === 'string') return `\`${value}\``;
  if (Array.isArray(value)) {
    return `\`${value.map((item) => (typeof item === 'string' ? item : Object.values(item as object).join(':'))).join(',')}\``;
  }
  return `\`${String(value)}\``;
}
