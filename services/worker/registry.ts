/** The task types of this worker: those of the modules that configuration names, and the built-in ones. */
import { createRequire } from 'node:module';
import { isAbsolute, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { toError } from '../../shared/errors/to-error.ts';
import { WarrenError } from '../../shared/errors/warren-error.ts';
import { isScheduleInCode } from '../../shared/schedules/define-schedule.ts';
import type { ScheduleInCode } from '../../shared/schedules/define-schedule.ts';
import { isTaskType } from '../../shared/tasks/define-task.ts';
import type { TaskType } from '../../shared/tasks/define-task.ts';

/** What to load. */
export interface RegistryOptions {
  /** Paths (`./tasks/mail.js`), file URLs or package names. Every export made by `defineTask` or `defineSchedule` is taken. */
  readonly modules: readonly string[];
  /** Directory from which paths and packages are found. */
  readonly baseDir: string;
  /** Types that come with Warren. They run on the loop. */
  readonly builtIn: readonly TaskType[];
}

interface Registered {
  readonly type: TaskType;
  /** `undefined` for a built-in type. */
  readonly module: string | undefined;
}

/** Task types by name. A Map, so that no name (`constructor`) finds what nobody registered. */
export class Registry {
  readonly #types: ReadonlyMap<string, Registered>;
  readonly #schedules: readonly ScheduleInCode[];

  constructor(types: ReadonlyMap<string, Registered>, schedules: readonly ScheduleInCode[]) {
    this.#types = types;
    this.#schedules = schedules;
  }

  find(name: string): TaskType | undefined {
    return this.#types.get(name)?.type;
  }

  /** URL of the module that exports the type, for threads, which load it anew; `undefined` for built-in and unknown types. */
  moduleOf(name: string): string | undefined {
    return this.#types.get(name)?.module;
  }

  all(): TaskType[] {
    return [...this.#types.values()].map(({ type }) => type);
  }

  /** The schedules that the modules define. */
  schedules(): readonly ScheduleInCode[] {
    return this.#schedules;
  }
}

/**
 * Loads all modules. Throws `task-module-invalid` with `module` and `reason` where one cannot be loaded, exports no task
 * type, or exports a name that another type has. The same type exported twice is one type.
 */
export async function loadRegistry(options: RegistryOptions): Promise<Registry> {
  const types = new Map<string, Registered>(options.builtIn.map((type) => [type.name, { type, module: undefined }]));
  const schedules = new Map<string, ScheduleInCode>();
  for (const module of options.modules) {
    const url = locate(module, options.baseDir);
    const exported = Object.values(await load(module, url));
    const found = exported.filter((value) => isTaskType(value));
    const defined = exported.filter((value) => isScheduleInCode(value));
    if (found.length + defined.length === 0)
      throw invalid(module, 'exports nothing that was made by defineTask or defineSchedule');
    for (const each of defined) {
      const { name } = each.schedule;
      const known = schedules.get(name);
      if (known !== undefined && known.definition !== each.definition)
        throw invalid(module, `the schedule ${name} is defined twice`);
      schedules.set(name, each);
    }
    for (const type of found) {
      const known = types.get(type.name);
      if (known !== undefined && known.type !== type) throw invalid(module, `${type.name} is defined twice`);
      if (known === undefined) types.set(type.name, { type, module: url });
    }
  }
  return new Registry(types, [...schedules.values()]);
}

async function load(module: string, url: string): Promise<Record<string, unknown>> {
  try {
    return (await import(url)) as Record<string, unknown>;
  } catch (thrown) {
    throw invalid(module, `cannot be loaded: ${toError(thrown).message}`, thrown);
  }
}

function locate(module: string, baseDir: string): string {
  if (module.startsWith('file:')) return pathToFileURL(fileURLToPath(module)).href;
  if (module.startsWith('.') || isAbsolute(module) || /\.[cm]?[jt]s$/.test(module)) {
    return pathToFileURL(resolve(baseDir, module)).href;
  }
  try {
    return pathToFileURL(createRequire(resolve(baseDir, 'package.json')).resolve(module)).href;
  } catch (thrown) {
    // require.resolve sees no package that exports only to `import`
    const found = resolveAsImport(module);
    if (found === undefined) throw invalid(module, 'is no file and no installed package', thrown);
    return found;
  }
}

function resolveAsImport(module: string): string | undefined {
  try {
    return import.meta.resolve(module);
  } catch {
    return undefined; // the caller's error says more
  }
}

function invalid(module: string, reason: string, cause?: unknown): WarrenError {
  return new WarrenError('task-module-invalid', { module, reason }, cause);
}
