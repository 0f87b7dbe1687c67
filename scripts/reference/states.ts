/** `docs/reference/states.md`: the states of a task and of a dead letter, drawn and listed from their tables. */
import { GROUP_STATES } from '../../shared/dead-letters/group-state.ts';
import { LETTER_KINDS, LETTER_REASONS, LETTER_STATES } from '../../shared/dead-letters/reason.ts';
import { ITEM_STATES, REPLAY_STATES, SKIP_CODES } from '../../shared/dead-letters/replay-state.ts';
import { STATE_MEANINGS, TASK_STATES, TERMINAL_STATES, TRANSITIONS } from '../../shared/tasks/state-machine.ts';
import type { Transition } from '../../shared/tasks/state-machine.ts';
import { code, fenced, page, table } from './markdown.ts';

const START = '[*]';

/** Prints the page. */
export function renderStates(): string {
  return page('States', 'For whoever looks at a task or a dead letter and asks what its state means.', [
    '## States of a task',
    table(
      ['state', 'meaning'],
      TASK_STATES.map((state) => [code(state), STATE_MEANINGS[state]]),
    ),
    '## The life of a task',
    'Nothing but these transitions happens. Each is one guarded statement in Postgres.',
    fenced('mermaid', diagram()),
    table(
      ['from', 'to', 'who, when'],
      TRANSITIONS.map(({ from, to, cause }) => [from === undefined ? '(new)' : code(from), code(to), cause]),
    ),
    '`blocked` is reserved for flows, which are not built yet: no task gets there today.',
    '## Dead letters',
    table(
      ['state', 'meaning'],
      Object.entries(LETTER_STATES).map(([state, meaning]) => [code(state), meaning]),
    ),
    table(
      ['kind', 'what it is'],
      Object.entries(LETTER_KINDS).map(([kind, meaning]) => [code(kind), meaning]),
    ),
    table(
      ['reason', 'of which kind: who causes it and when'],
      Object.entries(LETTER_REASONS).map(([reason, cause]) => [code(reason), cause]),
    ),
    '## Failure groups',
    table(
      ['state', 'meaning'],
      Object.entries(GROUP_STATES).map(([state, meaning]) => [code(state), meaning]),
    ),
    '## Replays',
    table(
      ['state of a replay', 'meaning'],
      Object.entries(REPLAY_STATES).map(([state, meaning]) => [code(state), meaning]),
    ),
    table(
      ['state of an item', 'meaning'],
      Object.entries(ITEM_STATES).map(([state, meaning]) => [code(state), meaning]),
    ),
    table(
      ['skipped with', 'because'],
      Object.entries(SKIP_CODES).map(([skip, why]) => [code(skip), why]),
    ),
  ]);
}

/** One arrow for each pair of states, with who draws it. */
function diagram(): string {
  const whoByArrow = new Map<string, Set<string>>();
  for (const transition of TRANSITIONS) {
    const arrow = `${transition.from ?? START} --> ${transition.to}`;
    const whos = whoByArrow.get(arrow) ?? new Set<string>();
    for (const who of whosOf(transition)) whos.add(who);
    whoByArrow.set(arrow, whos);
  }
  return [
    'stateDiagram-v2',
    ...[...whoByArrow].map(([arrow, whos]) => `  ${arrow}: ${[...whos].join(', ')}`),
    ...TERMINAL_STATES.map((state) => `  ${state} --> ${START}`),
  ].join('\n');
}

/** `worker: claim` is the worker's; `worker: …; reaper: …` belongs to both. */
function whosOf({ cause }: Transition): string[] {
  return cause.split('; ').map((part) => part.slice(0, part.indexOf(':')));
}
