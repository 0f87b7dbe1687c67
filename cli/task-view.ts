/** Shows tasks to people. */
import type { ApiAnswer } from './api.ts';
import type { CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { cut, renderAge, renderDuration, renderFields, renderInstant, renderTable, stateCell } from './render.ts';
import { numberAt, rawMember, textAt, textsAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

/** Columns of an input, result or body that are shown; `--json` shows all. */
const SHOWN_CHARACTERS = 1_000;

/** True for the ends that are no success. */
export function isBadEnd(state: string): boolean {
  return state === 'dead' || state === 'cancelled' || state === 'expired';
}

/** True for any end. */
export function hasEnded(state: string): boolean {
  return state === 'succeeded' || isBadEnd(state);
}

/** Everything about one task. */
export function renderTask(answer: ApiAnswer, { io, paint }: CommandContext): string {
  const task = answer.value;
  const instant = (name: string): string | undefined => {
    const at = textAt(task, name);
    return at === undefined ? undefined : renderInstant(at, io.clock.now());
  };
  const json = (name: string): string | undefined => shortenText(rawMember(answer, name));
  const number = (name: string): string | undefined => numberAt(task, name)?.toString();
  return (
    renderFields(
      [
        ['task', textAt(task, 'id')],
        ['type', textAt(task, 'type')],
        ['state', stateCell(textAt(task, 'state') ?? 'unknown')],
        ['progress', renderProgress(task)],
        ['says', textAt(viewAt(task, 'progress') ?? {}, 'message')],
        ['place', renderPlace(task)],
        ['starts', renderExpected(viewAt(task, 'estimatedStart'), 'atP50', io.clock.now())],
        ['ends', renderExpected(viewAt(task, 'estimatedFinish'), 'at', io.clock.now())],
        ['queue', textAt(task, 'queue')],
        ['priority', number('priority')],
        ['attempt', number('attempt')],
        ['failures', renderFailures(task)],
        ['accepted', instant('acceptedAt')],
        ['runs at', instant('runAt')],
        ['deadline', instant('deadline')],
        ['started', instant('startedAt')],
        ['finished', instant('finishedAt')],
        ['run time', renderRunTime(task)],
        ['cancel asked', instant('cancelRequestedAt')],
        ['worker', textAt(task, 'worker')],
        ['tags', textsAt(task, 'tags')?.join(', ')],
        ['business key', textAt(task, 'businessKey')],
        ['external id', textAt(task, 'externalId')],
        ['publisher', textAt(task, 'publisher')],
        ['correlation id', textAt(task, 'correlationId')],
        ['dead letter', textAt(task, 'deadLetterId')],
        ['flow', flowOf(viewAt(task, 'flow'))],
        ['error', errorCell(lastErrorOf(task))],
        ['input', json('input')],
        ['whole input', renderFile(task, 'inputFile')],
        ['result', json('result')],
        ['result file', renderFile(task, 'resultFile')],
      ],
      paint,
    ) + renderAttempts(viewsAt(task, 'attempts'), { io, paint })
  );
}

/** A table of tasks. */
export function renderTasks(tasks: readonly View[], { io, paint }: Pick<CommandContext, 'io' | 'paint'>): string {
  return renderTable(
    ['ID', 'STATE', 'PRI', 'ATTEMPT', 'ACCEPTED', 'QUEUE', 'TYPE'],
    tasks.map((task) => [
      textAt(task, 'id') ?? '',
      stateCell(textAt(task, 'state') ?? ''),
      String(numberAt(task, 'priority') ?? ''),
      String(numberAt(task, 'attempt') ?? ''),
      renderAge(textAt(task, 'acceptedAt') ?? '', io.clock.now()),
      textAt(task, 'queue') ?? '',
      textAt(task, 'type') ?? '',
    ]),
    { paint, columns: io.stdout.columns },
  );
}

/** A line on how a task is doing: `running, attempt 2, 45% writing the file`. */
export function renderStanding(task: View, now: Date): string {
  const attempt = numberAt(task, 'attempt') ?? 0;
  const state = textAt(task, 'state') ?? 'unknown';
  const runAt = textAt(task, 'runAt');
  const waitsUntil = (state === 'scheduled' || state === 'retrying') && runAt !== undefined;
  return [
    escapeText(state),
    attempt > 0 ? `attempt ${attempt}` : undefined,
    renderProgress(task) === undefined ? undefined : escapeText(renderProgress(task) ?? ''),
    waitsUntil ? `due ${renderAge(runAt, now)}` : undefined,
  ]
    .filter((part) => part !== undefined)
    .join(', ');
}

/** `45%`, `45% writing the file`; `undefined` where its handler tells nothing, or it no longer runs. */
export function renderProgress(task: View): string | undefined {
  const progress = viewAt(task, 'progress');
  if (progress === undefined || hasEnded(textAt(task, 'state') ?? '')) return undefined;
  const percent = `${Math.floor((numberAt(progress, 'fraction') ?? 0) * 100)}%`;
  const step = textAt(progress, 'step');
  return step === undefined ? percent : `${percent} ${step}`;
}

/** `in 40s`, an estimate; `undefined` where there is none. */
function renderExpected(estimate: View | undefined, member: string, now: Date): string | undefined {
  const at = textAt(estimate ?? {}, member);
  return at === undefined ? undefined : `about ${renderAge(at, now)}`;
}

/** `about 17 in its queue`; `undefined` where that is not known. */
function renderPlace(task: View): string | undefined {
  const position = numberAt(viewAt(task, 'estimatedStart') ?? {}, 'position');
  return position === undefined ? undefined : `about ${position} in its queue`;
}

/** Attempts that did not succeed, as a table. */
export function renderAttempts(attempts: readonly View[], { io, paint }: Pick<CommandContext, 'io' | 'paint'>): string {
  if (attempts.length === 0) return '';
  const table = renderTable(
    ['ATTEMPT', 'OUTCOME', 'ENDED', 'RAN', 'ERROR'],
    attempts.map((attempt) => [
      String(numberAt(attempt, 'attempt') ?? ''),
      textAt(attempt, 'outcome') ?? '',
      renderAge(textAt(attempt, 'finishedAt') ?? '', io.clock.now()),
      renderRunTime(attempt) ?? '',
      renderError(viewAt(attempt, 'error') ?? {}) ?? '',
    ]),
    { paint, columns: io.stdout.columns },
  );
  return `\nattempts that did not succeed\n${table}`;
}

/** `TypeError: x is not a function (E_CODE)` out of an error's members. */
export function renderError(error: View): string | undefined {
  const [type, message, code] = ['type', 'message', 'code'].map((name) => textAt(error, name));
  const said = [type, message].filter((part) => part !== undefined && part !== '').join(': ');
  if (code === undefined) return said === '' ? undefined : said;
  return said === '' ? code : `${said} (${code})`;
}

/** A text cut to what a person reads; `undefined` stays. */
export function shortenText(text: string | undefined): string | undefined {
  if (text === undefined || text.length <= SHOWN_CHARACTERS) return text;
  return `${cut(text.slice(0, SHOWN_CHARACTERS * 2), SHOWN_CHARACTERS)} (${text.length} characters; --json shows all)`;
}

/** The error of the last attempt that failed, where the task has not got over it. */
function lastErrorOf(task: View): View | undefined {
  const state = textAt(task, 'state');
  return state === 'dead' || state === 'retrying' ? viewAt(viewsAt(task, 'attempts').at(-1) ?? {}, 'error') : undefined;
}

function errorCell(error: View | undefined): { readonly text: string; readonly paint: 'red' } | undefined {
  const text = error === undefined ? undefined : renderError(error);
  return text === undefined ? undefined : { text, paint: 'red' };
}

/** How large a file of a task is, and how to get it. */
export function renderFile(task: View, name: 'inputFile' | 'resultFile'): string | undefined {
  const file = viewAt(task, name);
  if (file === undefined) return undefined;
  return `${numberAt(file, 'bytes') ?? 0} bytes; warren task download ${textAt(task, 'id') ?? ''} ${textAt(file, 'id') ?? ''} -o FILE`;
}

function renderFailures(task: View): string | undefined {
  const failures = numberAt(task, 'failures');
  const budget = numberAt(task, 'maxAttempts');
  if (failures === undefined || failures === 0) return undefined;
  return budget === undefined ? String(failures) : `${failures} of ${budget} allowed attempts`;
}

function renderRunTime(view: View): string | undefined {
  const ms = Date.parse(textAt(view, 'finishedAt') ?? '') - Date.parse(textAt(view, 'startedAt') ?? '');
  return Number.isNaN(ms) || ms < 0 ? undefined : renderDuration(ms);
}

function flowOf(flow: View | undefined): string | undefined {
  if (flow === undefined) return undefined;
  const step = textAt(flow, 'step');
  const why = textAt(flow, 'why');
  return `${textAt(flow, 'id') ?? ''}${step === undefined ? '' : `, step ${step}`}${why === undefined ? '' : ` (${why})`}`;
}
