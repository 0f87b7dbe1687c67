/** Writes what is downloaded into a file that is there whole or not at all. */
import { open, rename, rm } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { codeOf } from '../shared/errors/to-error.ts';
import { usageError } from './cli-error.ts';

/** Writes a piece. */
export type Write = (bytes: Uint8Array) => Promise<void>;

/** Writes to a file beside, and gives it the name at the very end: a half file never has it. Throws exit 2 where it cannot. */
export async function writeWhole<T>(path: string, work: (write: Write) => Promise<T>): Promise<T> {
  const beside = join(dirname(path), `.${basename(path)}.${process.pid}.part`);
  let file: FileHandle;
  try {
    file = await open(beside, 'w');
  } catch (thrown) {
    throw cannotWrite(path, thrown);
  }
  try {
    const result = await work(async (bytes) => {
      try {
        await file.writeFile(bytes);
      } catch (thrown) {
        throw cannotWrite(path, thrown);
      }
    });
    await file.sync();
    await file.close();
    await rename(beside, path).catch((thrown: unknown) => {
      throw cannotWrite(path, thrown);
    });
    return result;
  } catch (thrown) {
    await file.close().catch(() => undefined); // closed already
    await rm(beside, { force: true });
    throw thrown;
  }
}

function cannotWrite(path: string, thrown: unknown): Error {
  return usageError(`The file ${JSON.stringify(path)} cannot be written: ${codeOf(thrown) ?? 'unknown reason'}.`);
}
