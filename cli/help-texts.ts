/** Every help text, for the golden files in `test/golden/help/`. */
import type { Command } from 'commander';
import { allBelow, createProgram } from './run.ts';
import type { CliIo } from './io.ts';

/** Help of each command by file name: `warren.txt`, `warren-task-submit.txt`. 100 columns wide. */
export async function helpTexts(io: Omit<CliIo, 'stdout' | 'stderr'>): Promise<ReadonlyMap<string, string>> {
  const texts = new Map<string, string>();
  const names = allBelow(createProgram({ ...io, stdout: NOWHERE, stderr: NOWHERE }, () => undefined)).map((command) =>
    wordsOf(command),
  );
  for (const words of [[], ...names]) {
    let text = '';
    const stdout = { ...NOWHERE, write: (more: string) => void (text += more) };
    const program = createProgram({ ...io, stdout, stderr: NOWHERE }, () => undefined);
    await program.parseAsync([...words, '--help'], { from: 'user' }).catch(() => undefined); // help ends by a throw
    texts.set(`${['warren', ...words].join('-')}.txt`, text);
  }
  return texts;
}

const NOWHERE = { write: (): void => undefined, isTTY: false, columns: undefined };

/** The words that call a command. */
function wordsOf(command: Command): readonly string[] {
  return command.parent === null ? [] : [...wordsOf(command.parent), command.name()];
}
