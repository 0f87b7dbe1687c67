#!/usr/bin/env node
/** The process of `warren`: hands the real world to `runCli` and turns its answer into the exit code. */
import { readEnvironment } from '../shared/config/environment.ts';
import { systemClock } from '../shared/time/clock.ts';
import { systemRandom } from '../shared/time/random.ts';
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

async function readStdin(): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
