/** Files of a fleet of a test: where they are kept, what is known of them, and how they are downloaded. */
import { readFile } from 'node:fs/promises';
import { readdir } from 'node:fs/promises';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { call } from '../../scripts/call.ts';
import { eventually } from './eventually.ts';
import type { Fleet } from './fleet.ts';

/** Signs the links of a test. */
export const LINK_SECRET = 'a-secret-of-a-test-long-enough-to-be-one';

/** A folder of its own for a store. */
export async function openFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'warren-store-'));
  return { path, [Symbol.asyncDispose]: async () => await rm(path, { recursive: true, force: true }) };
}

/** The environment of a fleet that keeps files in a folder, and sweeps at once. */
export const inFolder = (path: string): Readonly<Record<string, string>> => ({
  WARREN_FILES_STORE: 'fs',
  WARREN_FILES_DIRECTORY: path,
  WARREN_FILES_LINK_SECRET: LINK_SECRET,
  WARREN_FILES_SWEEP_INTERVAL_MS: '100',
  WARREN_FILES_GRACE_MS: '1000',
});

/** Every file below a folder, as paths from there. */
export async function filesBelow(folder: string): Promise<readonly string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

/** Rows of files. */
export async function fileRows(fleet: Fleet): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const { rows } = await fleet.database.database.query({ text: 'select * from files order by id' });
  return rows as readonly Readonly<Record<string, unknown>>[];
}

/** Submits one task and waits for its end; gives its document. */
export async function runTask(
  fleet: Fleet,
  type: string,
  input: Readonly<Record<string, unknown>>,
  withinMs = 40_000,
): Promise<Readonly<Record<string, unknown>> & { readonly id: string; readonly state: string }> {
  const [id = ''] = await fleet.submit({ type, input });
  return await eventually(
    async () => {
      const { body } = await call(fleet.producer().url, 'GET', `/v1/tasks/${id}`);
      if (body['finishedAt'] === undefined) throw new Error(`task is ${String(body['state'])}\n${fleet.tails()}`);
      return body as Readonly<Record<string, unknown>> & { readonly id: string; readonly state: string };
    },
    { withinMs },
  );
}

/** A link as the API answered it. */
export interface Link {
  readonly url: string;
  readonly path: string;
  readonly expiresAt: string;
}

/** Makes a link. */
export async function linkTo(fleet: Fleet, taskId: string, fileId: string, body?: object): Promise<Link> {
  const answer = await call(fleet.producer().url, 'POST', `/v1/tasks/${taskId}/files/${fileId}/link`, body);
  if (answer.status !== 201) throw new Error(`no link: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body as unknown as Link;
}

/** The most memory that a process had, in bytes. */
export async function peakMemoryOf(pid: number): Promise<number> {
  const kilobytes = /VmHWM:\s+(\d+) kB/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kilobytes) * 1_024;
}
