/** Shows schedules to people. */
import type { ApiAnswer } from './api.ts';
import type { CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { renderAge, renderDuration, renderFields, renderInstant, renderTable, stateCell } from './render.ts';
import { shortenText } from './task-view.ts';
import { numberAt, rawMember, textAt, textsAt, viewAt } from './view.ts';
import type { View } from './view.ts';

type Shown = Pick<CommandContext, 'io' | 'paint'>;

/** A table of schedules. */
export function renderSchedules(items: readonly View[], { io, paint }: Shown): string {
  const now = io.clock.now();
  return renderTable(
    ['NAME', 'STATE', 'WHEN', 'NEXT', 'STARTS', 'RUNS', 'FROM'],
    items.map((schedule) => [
      textAt(schedule, 'name') ?? '',
      stateCell(textAt(schedule, 'state') ?? ''),
      whenOf(schedule),
      renderAge(textAt(schedule, 'nextAt') ?? '-', now),
      startsOf(schedule),
      runsOf(schedule),
      textAt(schedule, 'source') ?? '',
    ]),
    { paint, columns: io.stdout.columns },
  );
}

/** A whole schedule, with its next instants. */
export function renderSchedule(answer: ApiAnswer, { io, paint }: Shown): string {
  const { value: schedule } = answer;
  const now = io.clock.now();
  const at = (name: string): string | undefined => {
    const instant = textAt(schedule, name);
    return instant === undefined ? undefined : renderInstant(instant, now);
  };
  const catchUp = textAt(schedule, 'catchUp');
  const jitterMs = numberAt(schedule, 'jitterMs') ?? 0;
  const started = rawMember(answer, 'task') ?? rawMember(answer, 'flow');
  return [
    renderFields(
      [
        ['name', textAt(schedule, 'name')],
        ['for', textAt(schedule, 'description')],
        ['state', stateCell(textAt(schedule, 'state') ?? '')],
        ['when', whenOf(schedule)],
        ['starts', startsOf(schedule)],
        ['overlap', textAt(schedule, 'overlap')],
        ['catch-up', catchUp === 'all' ? `all, up to ${numberAt(schedule, 'catchUpMost') ?? '?'}` : catchUp],
        ['jitter', jitterMs === 0 ? undefined : `up to ${renderDuration(jitterMs)}`],
        ['runs', runsOf(schedule) || undefined],
        ['paused', at('pausedAt')],
        ['paused by', textAt(schedule, 'pausedBy')],
        ['because', textAt(schedule, 'pauseReason')],
        ['defined', textAt(schedule, 'source') === 'code' ? 'in code; `warren types apply` changes it' : undefined],
        ['created', at('createdAt')],
        ['created by', textAt(schedule, 'createdBy')],
        ['changed', textAt(schedule, 'updatedAt') === textAt(schedule, 'createdAt') ? undefined : at('updatedAt')],
        ['changed by', textAt(schedule, 'updatedBy')],
      ],
      paint,
    ),
    started === undefined ? '' : `\n${escapeText(shortenText(started) ?? '')}\n`,
    '\n',
    renderNext(schedule, { io, paint }),
  ].join('');
}

/** The next instants, in UTC and on the wall of the zone. */
export function renderNext(schedule: View, { io, paint }: Shown): string {
  const zone = textAt(schedule, 'timeZone') ?? 'UTC';
  const next = textsAt(schedule, 'next') ?? [];
  if (next.length === 0) return 'No instant comes any more.\n';
  const now = io.clock.now();
  return renderTable(
    ['NEXT', zone, 'IN'],
    next.map((instant) => [instant, wallOf(instant, zone), renderAge(instant, now)]),
    { paint, columns: io.stdout.columns },
  );
}

/** What became of instants. */
export function renderOccurrences(items: readonly View[], { io, paint }: Shown): string {
  const now = io.clock.now();
  return renderTable(
    ['AT', 'STATE', 'RUN', 'MORE'],
    items.map((occurrence) => [
      textAt(occurrence, 'at') ?? '',
      stateCell(textAt(occurrence, 'state') ?? ''),
      stateCell(textAt(occurrence, 'runState') ?? ''),
      moreOf(occurrence, now),
    ]),
    { paint, columns: io.stdout.columns },
  );
}

function moreOf(occurrence: View, now: Date): string {
  const from = textAt(occurrence, 'from');
  const cause = textAt(occurrence, 'cause');
  const askedBy = textAt(occurrence, 'askedBy');
  const runId = textAt(occurrence, 'taskId') ?? textAt(occurrence, 'flowId');
  const kind = textAt(occurrence, 'taskId') === undefined ? 'flow' : 'task';
  return [
    textAt(occurrence, 'why'),
    textAt(occurrence, 'detail'),
    from === undefined ? undefined : `with all from ${from} on`,
    cause === 'catchUp' ? `made up for ${renderAge(textAt(occurrence, 'decidedAt') ?? '', now)}` : undefined,
    cause === 'manual' ? `asked for by ${askedBy ?? '?'}` : undefined,
    runId === undefined ? undefined : `${kind} ${runId}`,
  ]
    .filter((part) => part !== undefined)
    .join(', ');
}

function whenOf(schedule: View): string {
  const cron = textAt(schedule, 'cron');
  const everyMs = numberAt(schedule, 'everyMs');
  if (cron !== undefined) return `${cron} ${textAt(schedule, 'timeZone') ?? ''}`;
  if (everyMs !== undefined) return `every ${renderDuration(everyMs)}`;
  return `once, ${textAt(schedule, 'at') ?? ''}`;
}

function startsOf(schedule: View): string {
  const starts = viewAt(schedule, 'starts') ?? {};
  return `${textAt(starts, 'kind') ?? ''} ${textAt(starts, 'name') ?? ''}`;
}

function runsOf(schedule: View): string {
  const running = numberAt(schedule, 'running') ?? 0;
  const waiting = numberAt(schedule, 'waiting') ?? 0;
  const parts = [running === 0 ? undefined : `${running} running`, waiting === 0 ? undefined : `${waiting} waiting`];
  return parts.filter((part) => part !== undefined).join(', ');
}

/** `Mon 2026-11-30 02:00:00`, as the clock of the zone shows it. */
function wallOf(instant: string, timeZone: string): string {
  const parts = new Intl.DateTimeFormat('en-GB', {
    timeZone,
    weekday: 'short',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hourCycle: 'h23',
  }).formatToParts(new Date(instant));
  const at = (type: string): string => parts.find((part) => part.type === type)?.value ?? '';
  return `${at('weekday')} ${at('year')}-${at('month')}-${at('day')} ${at('hour')}:${at('minute')}:${at('second')}`;
}
