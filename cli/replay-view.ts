/** Shows replays to people. */
import type { ApiAnswer } from './api.ts';
import type { CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { renderAge, renderFields, renderInstant, renderTable, stateCell } from './render.ts';
import { shortenText } from './task-view.ts';
import { numberAt, textAt, viewAt, viewsAt } from './view.ts';
import type { View } from './view.ts';

/** A table of replays. */
export function renderReplays(replays: readonly View[], { io, paint }: CommandContext): string {
  return renderTable(
    ['ID', 'STATE', 'CREATED', 'BY', 'SENT', 'WAVE', 'REASON'],
    replays.map((replay) => [
      textAt(replay, 'id') ?? '',
      stateCell(textAt(replay, 'state') ?? ''),
      renderAge(textAt(replay, 'createdAt') ?? '', io.clock.now()),
      textAt(replay, 'createdBy') ?? '',
      `${numberAt(replay, 'sent') ?? 0}/${numberAt(replay, 'items') ?? 0}`,
      String(numberAt(replay, 'wave') ?? 0),
      textAt(replay, 'stateReason') ?? textAt(replay, 'reason') ?? '',
    ]),
    { paint, columns: io.stdout.columns },
  );
}

/** A replay with its waves. */
export function renderReplay(replay: View, context: CommandContext): string {
  const { io, paint } = context;
  const instant = (name: string): string | undefined => {
    const at = textAt(replay, name);
    return at === undefined ? undefined : renderInstant(at, io.clock.now());
  };
  const fields = renderFields(
    [
      ['replay', textAt(replay, 'id')],
      ['state', stateCell(textAt(replay, 'state') ?? 'unknown')],
      ['because', textAt(replay, 'stateReason')],
      ['created', instant('createdAt')],
      ['created by', textAt(replay, 'createdBy')],
      ['reason', textAt(replay, 'reason')],
      ['finished', instant('finishedAt')],
      ['selection', JSON.stringify(replay['selection'] ?? {})],
      ['letters', `${numberAt(replay, 'items') ?? 0}, come to ${numberAt(replay, 'sent') ?? 0}`],
      ['rate', numberAt(replay, 'rate')?.toString()],
      ['queue', textAt(replay, 'queue')],
      ['priority', numberAt(replay, 'priority')?.toString()],
      ['wait for', textAt(replay, 'waitForVersion')],
      ['patch', replay['patch'] === undefined ? undefined : shortenText(JSON.stringify(replay['patch']))],
      ['so far', renderCounts(viewAt(replay, 'counts') ?? {})],
      ['skipped', renderCounts(viewAt(replay, 'skipped') ?? {}) || undefined],
    ],
    paint,
  );
  const waves = viewsAt(replay, 'waveCounts');
  if (waves.length === 0) return fields;
  return `${fields}\n${renderTable(
    ['WAVE', 'LETTERS', 'FAILED FIRST', 'OF THE SAME', 'STATES'],
    waves.map((wave) => [
      String(numberAt(wave, 'wave') ?? ''),
      String(numberAt(wave, 'items') ?? 0),
      String(numberAt(wave, 'failedFirst') ?? 0),
      String(numberAt(wave, 'sameFailure') ?? 0),
      renderCounts(viewAt(wave, 'counts') ?? {}),
    ]),
    { paint, columns: io.stdout.columns },
  )}`;
}

/** A table of items. */
export function renderItems(items: readonly View[], { io, paint }: CommandContext): string {
  return renderTable(
    ['N', 'LETTER', 'STATE', 'WAVE', 'TASK', 'WHY'],
    items.map((item) => [
      String(numberAt(item, 'n') ?? ''),
      textAt(item, 'letterId') ?? '',
      stateCell(textAt(item, 'state') ?? ''),
      numberAt(item, 'wave')?.toString() ?? '',
      textAt(item, 'taskId') ?? '',
      renderWhy(item),
    ]),
    { paint, columns: io.stdout.columns },
  );
}

function renderWhy(item: View): string {
  const error = viewAt(item, 'error');
  if (error !== undefined) {
    const same = error['isSame'] === true ? 'the same again: ' : '';
    return `${same}${textAt(error, 'type') ?? ''}: ${textAt(error, 'message') ?? ''}`;
  }
  const why = textAt(item, 'why');
  return [textAt(item, 'code'), why].filter((part) => part !== undefined).join(': ');
}

/** `12 succeeded, 3 dead`. */
export function renderCounts(counts: View): string {
  return Object.entries(counts)
    .filter(([, count]) => typeof count === 'number' && count > 0)
    .map(([state, count]) => `${String(count)} ${state}`)
    .join(', ');
}

/** What a dry run has found. */
export function renderDryRun({ value }: ApiAnswer, { io, paint }: CommandContext): string {
  const letters = numberAt(value, 'letters') ?? 0;
  const looked = value['isPartial'] === true ? `the first ${letters} letters, time ran out` : `${letters} letters`;
  const reasons = viewsAt(value, 'reasons').map((reason) => [
    String(numberAt(reason, 'letters') ?? 0),
    textAt(reason, 'code') ?? '',
    textAt(reason, 'why') ?? '',
  ]);
  const samples = viewsAt(value, 'samples').filter((sample) => sample['before'] !== undefined);
  const shown = samples.map(
    (sample) =>
      `${escapeText(textAt(sample, 'letterId') ?? '')}\n  before  ${escapeText(shortenText(JSON.stringify(sample['before'])) ?? '')}\n  after   ${escapeText(shortenText(JSON.stringify(sample['after'])) ?? '')}\n`,
  );
  return [
    `Of ${looked}, ${numberAt(value, 'replayed') ?? 0} would be replayed and ${numberAt(value, 'skipped') ?? 0} skipped.\n`,
    ...(reasons.length === 0
      ? []
      : [renderTable(['LETTERS', 'SKIPPED', 'WHY'], reasons, { paint, columns: io.stdout.columns })]),
    ...shown,
  ].join('');
}
