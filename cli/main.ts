#!/usr/bin/env node
/** The process of `warren`: hands the real world to `runCli` and turns its answer into the exit code. */
import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { readEnvironment } from '../shared/config/environment.ts';
import { systemClock } from '../shared/time/clock.ts';
import { systemRandom } from '../shared/time/random.ts';
import { interruptedError } from './api.ts';
import { EXIT_CODES } from './exit-codes.ts';
import type { Output } from './io.ts';
import { runCli } from './run.ts';

const interruption = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // A second one does not wait for anything.
    if (interruption.signal.aborted) process.exit(EXIT_CODES.interrupted);
    interruption.abort();
  });
}
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    // `warren task list | head`: whoever reads has enough.
    process.exit(error.code === 'EPIPE' ? EXIT_CODES.ok : EXIT_CODES.internal);
  });
}

process.exitCode = await runCli(process.argv.slice(2), {
  stdout: outputTo(process.stdout),
  stderr: outputTo(process.stderr),
  readStdin,
  ask: process.stdin.isTTY ? ask : undefined,
  env: readEnvironment(),
  clock: systemClock,
  random: systemRandom,
  fetch: globalThis.fetch,
  interrupted: interruption.signal,
});

function outputTo(stream: NodeJS.WriteStream): Output {
  return {
    write: (text) => void stream.write(text),
    isTTY: stream.isTTY,
    get columns() {
      return stream.isTTY ? stream.columns : undefined;
    },
  };
}

async function ask(question: string): Promise<string> {
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    // An end of input (Ctrl-D) answers nothing, and without this nobody would ever hear of it.
    const ended = once(lines, 'close').then(() => '');
    return await Promise.race([lines.question(question, { signal: interruption.signal }), ended]);
  } catch (thrown) {
    throw interruptedError(thrown);
  } finally {
    lines.close();
  }
}

async function readStdin(): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
