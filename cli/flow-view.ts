/** Shows flows to people. */
import type { ApiAnswer } from './api.ts';
import type { CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { renderAge, renderFields, renderInstant, renderTable, stateCell } from './render.ts';
import { shortenText } from './task-view.ts';
import { numberAt, rawMember, textAt, textsAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

type Shown = Pick<CommandContext, 'io' | 'paint'>;

const ENDS: ReadonlySet<string | undefined> = new Set(['succeeded', 'failed', 'partial', 'cancelled']);

/** True where nothing of it goes on. */
export function hasFlowEnded(flow: View): boolean {
  return ENDS.has(textAt(flow, 'state'));
}

/** A line for people who wait: `running, 3 of 5 steps`. */
export function renderFlowStanding(flow: View): string {
  const phase = textAt(flow, 'phase');
  const doing =
    phase === 'undo' ? ', what succeeded is undone' : phase === 'failure' ? ', the step for failures runs' : '';
  return `${textAt(flow, 'state') ?? '?'}, ${countsOf(flow)}${doing}`;
}

function countsOf(flow: View, noun = 'tasks'): string {
  const steps = viewAt(flow, 'steps') ?? {};
  // A list knows of a nested flow as one; a whole flow of all tasks.
  const tasks = viewAt(flow, 'tasks') ?? steps;
  const total = numberAt(tasks, 'total') ?? 0;
  const failed = numberAt(steps, 'failed') ?? 0;
  const done = Math.max(0, total - (numberAt(tasks, 'open') ?? 0));
  return `${done} of ${total} ${noun} ended${failed === 0 ? '' : `, ${failed} of them failed`}`;
}

/** A table of flows. */
export function renderFlows(items: readonly View[], { io, paint }: Shown): string {
  const now = io.clock.now();
  return renderTable(
    ['ID', 'NAME', 'STATE', 'STARTED', 'ABOUT', 'STEPS'],
    items.map((flow) => [
      textAt(flow, 'id') ?? '',
      textAt(flow, 'name') ?? '',
      stateCell(textAt(flow, 'state') ?? ''),
      renderAge(textAt(flow, 'createdAt') ?? '', now),
      [textAt(flow, 'businessType'), textAt(flow, 'businessKey')].filter((part) => part !== undefined).join(' '),
      countsOf(flow, 'steps'),
    ]),
    { paint, columns: io.stdout.columns },
  );
}

/** A whole flow: what is known of it, its steps drawn by what they wait for, and what it gave. */
export function renderFlow(answer: ApiAnswer, { io, paint }: Shown): string {
  const { value: flow } = answer;
  const now = io.clock.now();
  const at = (name: string): string | undefined => {
    const instant = textAt(flow, name);
    return instant === undefined ? undefined : renderInstant(instant, now);
  };
  const result = rawMember(answer, 'result');
  const parent = viewAt(flow, 'parent');
  return [
    renderFields(
      [
        ['id', textAt(flow, 'id')],
        ['name', textAt(flow, 'name')],
        [
          'step',
          parent === undefined ? undefined : `${textAt(parent, 'step') ?? ''} of flow ${textAt(parent, 'id') ?? ''}`,
        ],
        [
          'about',
          [textAt(flow, 'businessType'), textAt(flow, 'businessKey')].filter((part) => part !== undefined).join(' ') ||
            undefined,
        ],
        ['state', stateCell(textAt(flow, 'state') ?? '')],
        ['tasks', countsOf(flow)],
        ['created', at('createdAt')],
        ['created by', textAt(flow, 'createdBy')],
        ['started', at('startedAt')],
        ['finished', at('finishedAt')],
        ['cancelled by', textAt(flow, 'cancelledBy')],
        ['because', textAt(flow, 'cancelReason')],
      ],
      paint,
    ),
    '\n',
    renderGraph(viewsAt(flow, 'graph'), { io, paint }),
    result === undefined ? '' : `\n${paint('dim', 'result')}  ${escapeText(shortenText(result) ?? '')}\n`,
  ].join('');
}

/** The steps, each under one that it waits for and further to the right; what else it waits for is named. */
export function renderGraph(steps: readonly View[], { io, paint }: Shown): string {
  return renderTable(
    ['STEP', 'STATE', 'TYPE', 'MORE'],
    inOrder(steps).map(({ step, depth }) => [
      `${'  '.repeat(depth)}${depth === 0 ? '' : '└ '}${textAt(step, 'name') ?? ''}`,
      stateOf(step),
      typeOf(step),
      moreOf(step),
    ]),
    { paint, columns: io.stdout.columns },
  );
}

interface Placed {
  readonly step: View;
  readonly depth: number;
}

/**
 * Each step after, and one to the right of, the last of those that it waits for, else the step whose flow it is in; those of equal place in their
 * order.
 */
function inOrder(steps: readonly View[]): readonly Placed[] {
  const children = new Map<string | undefined, View[]>();
  const levels = new Map(steps.map((step) => [textAt(step, 'name') ?? '', numberAt(step, 'level') ?? 0]));
  for (const step of steps) {
    const before = textsAt(step, 'after') ?? [];
    const last = before.toSorted((a, b) => (levels.get(b) ?? 0) - (levels.get(a) ?? 0))[0];
    const parent = last ?? textAt(step, 'within');
    children.set(parent, [...(children.get(parent) ?? []), step]);
  }
  const placed: Placed[] = [];
  const open = (children.get(undefined) ?? []).map((step) => ({ step, depth: 0 })).toReversed();
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    placed.push(next);
    const { depth } = next;
    const below = children.get(textAt(next.step, 'name')) ?? [];
    open.push(...below.map((step) => ({ step, depth: depth + 1 })).toReversed());
  }
  return placed;
}

function stateOf(step: View): ReturnType<typeof stateCell> {
  const states = viewAt(step, 'states');
  if (states === undefined) return stateCell(textAt(step, 'state') ?? '');
  return Object.entries(states)
    .map(([state, tasks]) => `${String(tasks)} ${state}`)
    .join(', ');
}

/** A step that is a flow says its name: `flow settlement`. */
function typeOf(step: View): string {
  const name = textAt(viewAt(step, 'flow') ?? {}, 'name') ?? textAt(step, 'flow');
  return name === undefined ? (textAt(step, 'type') ?? '') : `flow ${name}`;
}

function moreOf(step: View): string {
  const attempt = numberAt(step, 'attempt') ?? 0;
  const signal = viewAt(step, 'signal');
  const letter = textAt(step, 'deadLetterId');
  const flow = viewAt(step, 'flow');
  const before = textsAt(step, 'after') ?? [];
  const isWaiting = ['blocked', 'planned'].includes(textAt(step, 'state') ?? '');
  return [
    before.length < 2 ? undefined : `after ${before.join(', ')}`,
    signal === undefined || signal['isSent'] === true || !isWaiting
      ? undefined
      : `waits for the signal ${textAt(signal, 'name') ?? ''}`,
    attempt < 2 ? undefined : `attempt ${attempt}`,
    letter === undefined ? undefined : `dead letter ${letter}`,
    flow === undefined ? undefined : `${textAt(flow, 'id') ?? ''}, ${countsOf(flow, 'steps')}`,
    textAt(step, 'why'),
  ]
    .filter((part) => part !== undefined)
    .join('; ');
}
