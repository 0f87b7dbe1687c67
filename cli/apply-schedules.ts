/** Makes the schedules of the database those of the code. Loaded by `types apply` and `dev`. */
import type { Config } from '../shared/config/schema.ts';
import { WarrenError } from '../shared/errors/warren-error.ts';
import { webhookRuleOf } from '../shared/http/webhook-url.ts';
import { silentLogger } from '../shared/observability/silent-log.ts';
import type { Database } from '../shared/postgres/pool.ts';
import type { ScheduleInCode } from '../shared/schedules/define-schedule.ts';
import { runOf } from '../shared/schedules/read-schedule.ts';
import { applySchedules } from '../shared/schedules/store.ts';
import type { CodeChange } from '../shared/schedules/store.ts';
import { newId } from '../shared/tasks/ids.ts';
import { limitsOf } from '../shared/tasks/submission-limits.ts';
import { TypeCatalog } from '../shared/tasks/type-catalog.ts';
import type { CommandContext } from './context.ts';

/** What is to be applied. */
export interface Applying {
  readonly database: Database;
  readonly config: Config;
  readonly schedules: readonly ScheduleInCode[];
  /** Only say what would be done. */
  readonly isDryRun: boolean;
  /** Take away those of code that no module names any more. */
  readonly isPruned: boolean;
}

/** Bytes of a flow, in bodies of one task: as the producer takes them. */
const FLOW_FACTOR = 32;

/** Applies them, once each has been checked against the types that are announced. Throws what the first is refused for, and as `applySchedules`. */
export async function applyChecked(
  { io }: CommandContext,
  { database, config, schedules, isDryRun, isPruned }: Applying,
): Promise<readonly CodeChange[]> {
  const catalog = new TypeCatalog({ db: database, clock: io.clock, log: silentLogger, random: io.random });
  await catalog.refresh();
  const { messageBytes } = config.limits;
  const limits = {
    task: { ...limitsOf(config, webhookRuleOf(config.webhooks.allowHosts)), messageBytes },
    flowBytes: messageBytes * FLOW_FACTOR,
  };
  for (const { schedule } of schedules) {
    const made = runOf(schedule, { flowId: newId<string>(), newId, atMs: 0 }, catalog, limits);
    if (made.kind === 'ok') continue;
    const { faults } = made;
    const [{ code, field, reason }] = faults;
    throw new WarrenError(code, { schedule: schedule.name, field, reason, faults });
  }
  return await applySchedules(database, schedules, { editor: { name: 'code', role: 'admin' }, isDryRun, isPruned });
}
