/** `warren task files` and `warren task download`: what handlers saved. */
import { createHash } from 'node:crypto';
import type { Command } from 'commander';
import { pathStep } from './api.ts';
import type { ApiClient } from './api.ts';
import { CliError, usageError } from './cli-error.ts';
import type { Act, CommandContext } from './context.ts';
import { escapeText } from './escape.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { renderAge, renderTable } from './render.ts';
import { numberAt, textAt, viewsAt } from './view.ts';
import type { View } from './view.ts';
import { writeWhole } from './write-whole.ts';

/** Seconds for which the link of a download is valid: it is followed at once. */
const LINK_SECONDS = 300;
const SHOW_EVERY_MS = 100;
const BAR_WIDTH = 30;

/** Adds the commands to the group. */
export function addFileCommands(task: Command, act: Act): void {
  addFiles(task, act);
  addDownload(task, act);
}

function addFiles(task: Command, act: Act): void {
  task
    .command('files')
    .description('list the files that a task saved')
    .argument('<id>', 'id of the task')
    .addHelpText('after', '\nExamples:\n  warren task files 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70')
    .action(
      act(async (context, _options, id) => {
        const api = await context.taskApi();
        const answer = await api.get(`/v1/tasks/${pathStep(id)}/files`);
        context.printJson(answer.bytes);
        const files = viewsAt(answer.value, 'items');
        if (files.length === 0) context.remark('No files.\n');
        else context.print(renderFiles(files, context));
      }),
    );
}

function addDownload(task: Command, act: Act): void {
  task
    .command('download')
    .description('download a file that a task saved')
    .argument('<id>', 'id of the task')
    .argument('<file>', 'id of the file, or its name where no other file of the task has it')
    .requiredOption('-o, --output <path>', 'write there; what is there is replaced at the end')
    .addHelpText(
      'after',
      `
Examples:
  warren task download 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 report.pdf -o report.pdf
  warren task download 0198f3a2-7c10-7d3e-9a4b-2f6c1d8e5b70 0198f3a2-8000-7d3e-9a4b-2f6c1d8e5b70 -o /tmp/report.pdf`,
    )
    .action(
      act<{ readonly output: string }>(async (context, { output }, id, wanted) => {
        const api = await context.taskApi();
        const { value } = await api.get(`/v1/tasks/${pathStep(id)}/files`);
        const file = choose(viewsAt(value, 'items'), wanted);
        await writeWhole(output, async (write) => await download(context, api, { id, file, write }));
        const bytes = numberAt(file, 'bytes') ?? 0;
        context.printJson({ file: output, bytes, sha256: textAt(file, 'sha256') });
        context.remark(`${bytes} bytes are in ${escapeText(output)}.\n`);
      }),
    );
}

/** The file of this id, or of this name. Throws exit 1 where there is none, exit 2 where a name fits several. */
function choose(files: readonly View[], wanted: string): View {
  const byId = files.find((file) => textAt(file, 'id') === wanted.toLowerCase());
  if (byId !== undefined) return byId;
  const named = files.filter((file) => textAt(file, 'name') === wanted);
  const [first] = named;
  if (named.length > 1) {
    throw usageError(
      `${named.length} files of the task have this name.`,
      'Give the id of one: see `warren task files`.',
    );
  }
  if (first === undefined) {
    throw new CliError(EXIT_CODES.failed, {
      code: 'file-not-found',
      title: 'The task has no such file.',
      hint: 'See `warren task files`. Files are deleted some time after their task ended.',
    });
  }
  return first;
}

interface Download {
  readonly id: string;
  readonly file: View;
  readonly write: (bytes: Uint8Array) => Promise<void>;
}

/** Makes a link, follows it, and compares what came with what was stored. */
async function download(context: CommandContext, api: ApiClient, { id, file, write }: Download): Promise<void> {
  const fileId = textAt(file, 'id') ?? '';
  const body = JSON.stringify({ expiresInSeconds: LINK_SECONDS });
  const link = await api.post(`/v1/tasks/${pathStep(id)}/files/${pathStep(fileId)}/link`, body);
  const bar = openBar(context, numberAt(file, 'bytes') ?? 0);
  const hash = createHash('sha256');
  try {
    await api.getFile(textAt(link.value, 'path') ?? '/', async (bytes) => {
      hash.update(bytes);
      await write(bytes);
      bar.add(bytes.length);
    });
  } finally {
    bar.close();
  }
  if (hash.digest('hex') !== textAt(file, 'sha256')) {
    throw new CliError(EXIT_CODES.internal, {
      code: 'internal',
      title: 'What came is not what was stored: the SHA-256 differs.',
      hint: 'Try again; if it stays so, the store has another file under this name.',
    });
  }
}

/** A bar on a terminal, nothing elsewhere. */
function openBar({ io, isJson }: CommandContext, whole: number): { add(bytes: number): void; close(): void } {
  const { clock, stderr } = io;
  if (!stderr.isTTY || isJson) return { add: () => undefined, close: () => undefined };
  let come = 0;
  let shownAt = Number.NEGATIVE_INFINITY;
  return {
    add: (bytes) => {
      come += bytes;
      if (clock.monotonicMs() - shownAt < SHOW_EVERY_MS) return;
      shownAt = clock.monotonicMs();
      const filled = Math.min(BAR_WIDTH, Math.floor((come / Math.max(whole, 1)) * BAR_WIDTH));
      const percent = Math.min(100, Math.floor((come / Math.max(whole, 1)) * 100));
      stderr.write(`\r\u001b[K[${'#'.repeat(filled)}${'.'.repeat(BAR_WIDTH - filled)}] ${percent}% of ${whole} bytes`);
    },
    close: () => stderr.write('\r\u001b[K'),
  };
}

function renderFiles(files: readonly View[], { io, paint }: CommandContext): string {
  return renderTable(
    ['ID', 'BYTES', 'KIND', 'SAVED', 'CONTENT TYPE', 'NAME'],
    files.map((file) => [
      textAt(file, 'id') ?? '',
      String(numberAt(file, 'bytes') ?? ''),
      textAt(file, 'kind') ?? '',
      renderAge(textAt(file, 'createdAt') ?? '', io.clock.now()),
      textAt(file, 'contentType') ?? '',
      textAt(file, 'name') ?? '',
    ]),
    { paint, columns: io.stdout.columns },
  );
}
