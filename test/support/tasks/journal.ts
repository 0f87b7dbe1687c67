/** What handlers of the fault tests write down outside Warren, so that a test can compare it with what Warren says. */
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import type { TaskContext } from '../../../shared/tasks/define-task.ts';
import { systemClock } from '../../../shared/time/clock.ts';

/** A line of a journal. */
export interface JournalEntry {
  readonly taskId: string;
  readonly attempt: number;
  /** `did`: something in between. `ended`: the handler was through, whatever became of its settle. */
  readonly event: 'started' | 'did' | 'ended' | 'aborted';
  readonly pid: number;
  /** Wall clock of the process, in milliseconds since 1970. */
  readonly atMs: number;
  readonly note?: string;
}

/** The part of every input that names the journal. */
export const journalled = { journal: z.string() };

/** Writes a line before it returns: what follows may be the end of the process. */
export function note(journal: string, ctx: TaskContext, event: JournalEntry['event'], text?: string): void {
  const entry: JournalEntry = {
    taskId: ctx.taskId,
    attempt: ctx.attempt,
    event,
    pid: process.pid,
    atMs: systemClock.now().getTime(),
    ...(text === undefined ? {} : { note: text }),
  };
  appendFileSync(journal, `${JSON.stringify(entry)}\n`);
}

/** All lines so far. */
export function readJournal(journal: string): readonly JournalEntry[] {
  if (!existsSync(journal)) return [];
  return readFileSync(journal, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as JournalEntry);
}
