/**
 * Files of tasks over HTTP. What a handler saved may be anything, also a page with a script that somebody else wrote: a browser is told
 * to save it, to guess nothing of what it is, and, should it show it all the same, to run nothing in it.
 */
import { Readable } from 'node:stream';
import { z } from 'zod';
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { contentDisposition } from '../../../shared/files/file-reference.ts';
import { parseBody, rawBody } from '../../../shared/http/body.ts';
import { requireRole } from '../../../shared/http/server.ts';
import type { App } from '../../../shared/http/server.ts';
import type { Logger } from '../../../shared/observability/log.ts';
import { toError } from '../../../shared/errors/to-error.ts';
import { findFiles, followLink, makeLink, openFile } from '../files.ts';
import type { FilesDeps, StoredFile } from '../files.ts';
import { parseRange } from './byte-range.ts';
import { fileLink, linkBody, taskFiles } from './files.schema.ts';
import { idOf } from './ids.ts';
import { problem } from './tasks.schema.ts';

/** What the routes need. */
export interface FileRoutesDeps extends FilesDeps {
  readonly log: Logger;
}

/** How links are made. */
export interface FileRoutesOptions {
  /** Milliseconds that a link is valid, where no duration is asked for. */
  readonly linkMs: number;
  /** First part of links; empty: the host that was asked. */
  readonly linkBaseUrl: string;
  /** Levels that a body may nest. */
  readonly depth: number;
}

const LINK_BYTES = 4_096;
const NO_BODY = Buffer.from('{}');
const taskParams = z.object({ id: z.string().max(100).describe('Id of the task.') });
const fileParams = taskParams.extend({ fileId: z.string().max(100).describe('Id of the file.') });
const linkParams = z.object({ fileId: z.string().max(100) });

/** Adds the routes. */
export function registerFileRoutes(app: App, deps: FileRoutesDeps, options: FileRoutesOptions): void {
  addList(app, deps);
  addLink(app, deps, options);
  addDownload(app, deps);
}

function addList(app: App, deps: FileRoutesDeps): void {
  const schema = {
    summary: 'Files of a task, in the order in which its handler saved them',
    params: taskParams,
    response: { 200: taskFiles, '4xx': problem },
  };
  app.get('/v1/tasks/:id/files', { ...requireRole('viewer'), schema }, async (request) => {
    const files = await findFiles(deps.db, idOf(request.params.id));
    return { items: files.map((file) => fileOf(file)) };
  });
}

function addLink(app: App, deps: FileRoutesDeps, { linkMs, linkBaseUrl, depth }: FileRoutesOptions): void {
  const schema = {
    summary: 'Make a link to a file of a task that succeeded: whoever has it may download the file until it expires',
    params: fileParams,
    body: rawBody(linkBody),
    response: { 201: fileLink, '4xx': problem, '5xx': problem },
  };
  const options = {
    ...requireRole('viewer'),
    bodyLimit: LINK_BYTES,
    schema,
    // The body may be absent.
    preValidation: async (request: { body: unknown }): Promise<void> => {
      request.body ??= { raw: NO_BODY };
      await Promise.resolve();
    },
  };
  app.post('/v1/tasks/:id/files/:fileId/link', options, async (request, reply) => {
    const taskId = idOf(request.params.id);
    const fileId = idOf(request.params.fileId, 'fileId');
    const { value } = parseBody(request.body, linkBody, { maxBytes: LINK_BYTES, maxDepth: depth });
    const expiresInSeconds = value.expiresInSeconds ?? Math.max(1, Math.floor(linkMs / 1_000));
    const { path, expiresAt } = await makeLink(deps, { taskId, fileId, expiresInSeconds });
    const { name: actor, role } = request.actor;
    deps.log.info('link to a file made', { taskId, fileId, actor, role, expiresAt });
    const base = linkBaseUrl === '' ? `${request.protocol}://${request.host}` : linkBaseUrl.replace(/\/+$/, '');
    return await reply.code(201).send({ url: base + path, path, expiresAt: expiresAt.toISOString() });
  });
}

function addDownload(app: App, deps: FileRoutesDeps): void {
  const schema = {
    summary: 'The bytes of a file, by a link and without a token; takes one Range',
    params: linkParams,
    // Bytes, which no serializer may touch: the schemas are for the document.
    response: { '4xx': problem, '5xx': problem } as Readonly<Record<string, z.ZodType>>,
  };
  // The signature is the right to it.
  app.get('/v1/files/:fileId', { config: { isOpen: true }, schema }, async (request, reply) => {
    void reply.headers({ 'cache-control': 'private, no-store', 'referrer-policy': 'no-referrer' });
    const file = await followLink(deps, request.url);
    const etag = `"${file.sha256}"`;
    const { range: asked, 'if-range': ifRange = etag } = request.headers;
    void reply.header('accept-ranges', 'bytes');
    const range = ifRange === etag ? rangeOf(asked, file, reply) : undefined;
    const body = request.method === 'HEAD' ? Readable.from([]) : await openFile(deps, file, range);
    body.once('error', (thrown) => {
      deps.log.warn('download cut off', { fileId: file.id, err: toError(thrown) });
    });
    const { start, end } = range ?? { start: 0, end: file.bytes - 1 };
    void reply.code(range === undefined ? 200 : 206).headers({
      etag,
      'content-length': String(end - start + 1),
      'content-type': file.contentType,
      'content-disposition': contentDisposition(file.name),
      'content-security-policy': "sandbox; default-src 'none'",
      'x-content-type-options': 'nosniff',
      ...(range === undefined ? {} : { 'content-range': `bytes ${start}-${end}/${file.bytes}` }),
    });
    return await reply.send(body);
  });
}

function rangeOf(
  header: string | undefined,
  { bytes }: StoredFile,
  reply: { header(name: string, value: string): unknown },
): ReturnType<typeof parseRange> {
  try {
    return parseRange(header, bytes);
  } catch (thrown) {
    reply.header('content-range', `bytes */${bytes}`);
    throw thrown;
  }
}

function fileOf({
  key: _key,
  createdAt,
  linkExpiresAt,
  kind,
  ...file
}: StoredFile): (typeof taskFiles)['_output']['items'][number] {
  if (kind !== 'saved' && kind !== 'result' && kind !== 'input') throw new WarrenError('internal', { kind });
  return {
    ...file,
    kind,
    createdAt: createdAt.toISOString(),
    ...(linkExpiresAt === undefined ? {} : { linkExpiresAt: linkExpiresAt.toISOString() }),
  };
}
