/** Schedules as code, beside the task types that they start. `warren types apply` makes the database say the same. */
import { WarrenError } from '../errors/warren-error.ts';
import type { TaskType } from '../tasks/define-task.ts';
import { definitionOf, readSchedule } from './read-schedule.ts';
import type { Defined } from './store.ts';

/** When it is due: one of these. */
export type ScheduleTiming =
  | {
      /** Five fields, six with seconds in front, or a nickname such as `@daily`. */
      readonly cron: string;
    }
  | {
      /** Milliseconds, 1 000 to 31 622 400 000, whatever clocks on walls do. */
      readonly everyMs: number;
      /** RFC 3339: counted from this instant. Default: the start of 1970 in UTC. */
      readonly from?: string;
    }
  | {
      /** RFC 3339: once, at this instant. */
      readonly at: string;
    };

/** What may run beside what, and what else there is to say. */
export interface ScheduleOptions {
  /** A letter, then letters, digits, `_`, `.` or `-`; at most 100 characters. There is one of it. */
  readonly name: string;
  readonly description?: string;
  /** IANA time zone of `cron`, and of `scheduled.date`. Default UTC. */
  readonly timeZone?: string;
  /** While the run before has not ended. Default skip. */
  readonly overlap?: 'skip' | 'queue' | 'allow' | 'cancelRunning';
  /** Of instants that passed while no producer ran. Default last. */
  readonly catchUp?: 'none' | 'last' | 'all';
  /** With catchUp all: instants that are made up for at most, 1 to 100. Default 10. */
  readonly catchUpMost?: number;
  /** Each start is put off by a part of this: milliseconds, 0 to 86 400 000. Default 0. */
  readonly jitterMs?: number;
}

/** What it starts. */
export type ScheduledRun<Input> =
  | {
      readonly task: TaskType<Input>;
      /** Typed by the task; what `scheduled` has may stand anywhere in it. */
      readonly input: Input;
      readonly queue?: string;
      readonly priority?: number;
      readonly maxAttempts?: number;
      readonly tags?: readonly string[];
      readonly businessKey?: string;
    }
  /** The body of a flow, as `POST /v1/flows` takes it. */
  | { readonly flow: Readonly<Record<string, unknown>> };

/** A schedule that code defines. Frozen. */
export interface ScheduleInCode extends Defined {
  /** Tells it from any other export of a module, over realms and copies of this file. */
  readonly warren: 'schedule';
}

/** Stand in inputs, as texts, for what is known only when a run begins. */
export const scheduled = {
  /** The instant that the run is for: RFC 3339, in UTC. */
  at: { $schedule: 'at' } as unknown as string,
  /** Its date in the time zone: `2026-01-31`. */
  date: { $schedule: 'date' } as unknown as string,
  /** The name of the schedule. */
  name: { $schedule: 'name' } as unknown as string,
} as const;

/** Defines a schedule. Throws `task-module-invalid` with `field` and `reason` for the first rule that is broken. */
export function defineSchedule<Input>(
  definition: ScheduleOptions & ScheduleTiming & ScheduledRun<Input>,
): ScheduleInCode {
  const text = JSON.stringify(bodyOf(definition));
  const read = readSchedule(text);
  if (read.kind === 'refused') {
    const { field, reason } = read.faults[0];
    throw new WarrenError('task-module-invalid', { schedule: definition.name, field, reason });
  }
  return Object.freeze({ warren: 'schedule', schedule: read.value, definition: definitionOf(text) });
}

/** True for what `defineSchedule` made, also in another realm or by another copy of this file. */
export function isScheduleInCode(value: unknown): value is ScheduleInCode {
  return (
    typeof value === 'object' &&
    value !== null &&
    'warren' in value &&
    value.warren === 'schedule' &&
    'definition' in value &&
    typeof value.definition === 'string'
  );
}

function bodyOf<Input>(
  definition: ScheduleOptions & ScheduleTiming & ScheduledRun<Input>,
): Readonly<Record<string, unknown>> {
  if (!('task' in definition)) return { ...definition };
  const { task, input, queue, priority, maxAttempts, tags, businessKey, ...others } = definition;
  return { ...others, task: { type: task.name, input, queue, priority, maxAttempts, tags, businessKey } };
}
