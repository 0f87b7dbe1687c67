/** `report.csv`: aggregates a data set of flights by hour or distance and writes the table as a CSV file. */
import { createReadStream } from 'node:fs';
import { rename, rm, stat, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import { defineTask } from '../../shared/tasks/define-task.ts';
import { RelativePath, outputPath, sourcePath } from './files.ts';

const ReportInput = z.strictObject({
  source: RelativePath.default('flights-200k.json'),
  groupBy: z.enum(['hour', 'distance']).default('hour'),
  /** Directory for the file, below the samples' own. */
  output: RelativePath,
});

/** The larger data sets hold the hour as a number, the smaller ones a date: `2001/01/01 06:55`. */
const Flight = z.object({
  delay: z.number(),
  distance: z.number(),
  time: z.number().optional(),
  date: z.string().optional(),
});

interface Group {
  flights: number;
  delaySum: number;
  late: number;
  worst: number;
}

/** Reads the file in pieces, so neither memory nor the event loop feels its size. Written under another name, then renamed. */
export const reportCsv = defineTask({
  name: 'report.csv',
  input: ReportInput,
  timeoutMs: 120_000,
  retry: { maxAttempts: 3, firstDelayMs: 500, neverOn: ['ENOENT'] },
  run: async ({ source, groupBy, output }, ctx) => {
    const path = sourcePath(source);
    const totalBytes = (await stat(path)).size;
    const groups = new Map<number, Group>();
    let bytes = 0;
    let rows = 0;
    let rest = '';
    for await (const chunk of createReadStream(path, { encoding: 'utf8', signal: ctx.signal })) {
      const text = rest + String(chunk);
      const end = text.lastIndexOf('}') + 1;
      for (const flight of parseFlights(text.slice(0, end))) {
        add(groups, groupBy === 'hour' ? hourOf(flight) : Math.floor(flight.distance / 250) * 250, flight.delay);
        rows += 1;
      }
      rest = text.slice(end);
      bytes += Buffer.byteLength(String(chunk));
      ctx.progress((bytes / totalBytes) * 0.95, 'reading');
    }
    const file = await outputPath(`${output}/flights-by-${groupBy}.csv`);
    const draft = `${file}.${ctx.taskId}-${ctx.attempt}`;
    try {
      await writeFile(draft, renderCsv(groupBy, groups));
      await rename(draft, file);
    } finally {
      await rm(draft, { force: true });
    }
    ctx.progress(1, 'written');
    return { file, rows, groups: groups.size };
  },
});

/** The records of a piece of a JSON array of flat objects. */
function parseFlights(text: string): z.output<typeof Flight>[] {
  const start = text.indexOf('{');
  return start < 0 ? [] : z.array(Flight).parse(JSON.parse(`[${text.slice(start)}]`));
}

function hourOf({ time, date }: z.output<typeof Flight>): number {
  return Math.floor(time ?? Number(date?.slice(11, 13)));
}

function add(groups: Map<number, Group>, key: number, delay: number): void {
  const group = groups.get(key) ?? { flights: 0, delaySum: 0, late: 0, worst: -Infinity };
  group.flights += 1;
  group.delaySum += delay;
  if (delay > 15) group.late += 1;
  group.worst = Math.max(group.worst, delay);
  groups.set(key, group);
}

function renderCsv(groupBy: string, groups: Map<number, Group>): string {
  const lines = [...groups]
    .toSorted(([a], [b]) => a - b)
    .map(([key, { flights, delaySum, late, worst }]) =>
      [key, flights, (delaySum / flights).toFixed(2), ((late / flights) * 100).toFixed(1), worst].join(','),
    );
  return [`${groupBy},flights,mean_delay_minutes,late_percent,worst_delay_minutes`, ...lines, ''].join('\n');
}
