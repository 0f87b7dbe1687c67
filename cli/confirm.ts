/** Asks before something that cannot be taken back. */
import { usageError } from './cli-error.ts';
import type { CommandContext } from './context.ts';

/**
 * Asks `question` on a terminal; true where the answer is yes. With `isYes` nobody is asked. Throws exit 2 where nobody can be
 * asked: a script must say `--yes`.
 */
export async function confirm({ io, isJson }: CommandContext, question: string, isYes: boolean): Promise<boolean> {
  if (isYes) return true;
  if (io.ask === undefined || isJson) {
    throw usageError(`${question} Nobody can be asked here.`, 'Add --yes, or --dry-run to see what it would do.');
  }
  return /^y(es)?$/i.test((await io.ask(`${question} [y/N] `)).trim());
}
