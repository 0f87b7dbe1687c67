/** Links to files that anybody may follow until they expire: a signature over the file and the instant, and nothing else to trust. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { WarrenError } from '../errors/warren-error.ts';

/** The path of a link, query included. One form alone is accepted, so that every change of a link is seen. */
const LINK = /^\/v1\/files\/([0-9a-f-]{36})\?expires=([1-9]\d{0,11})&signature=([A-Za-z0-9_-]{43})$/;

/** Makes the path of a link that is valid before `expiresAt`, which is taken in whole seconds. */
export function signLink(secret: string, fileId: string, expiresAt: Date): string {
  const expires = Math.floor(expiresAt.getTime() / 1_000);
  return `/v1/files/${fileId}?expires=${expires}&signature=${signatureOf(secret, fileId, String(expires))}`;
}

/** Gives the id of the file that the path of a link leads to. Throws `link-invalid`, and `link-expired` for one that was right. */
export function verifyLink(secret: string, path: string, now: Date): string {
  const [, fileId, expires, signature] = LINK.exec(path) ?? [];
  if (fileId === undefined || expires === undefined || signature === undefined) throw new WarrenError('link-invalid');
  // As text: two texts of base64 may stand for the same bytes. Both are 43 characters.
  const expected = Buffer.from(signatureOf(secret, fileId, expires));
  if (!timingSafeEqual(expected, Buffer.from(signature))) throw new WarrenError('link-invalid');
  const expiresAt = new Date(Number(expires) * 1_000);
  if (now >= expiresAt) throw new WarrenError('link-expired', { expiredAt: expiresAt.toISOString() });
  return fileId;
}

function signatureOf(secret: string, fileId: string, expires: string): string {
  return createHmac('sha256', secret).update(`warren file link 1\n${fileId}\n${expires}`).digest('base64url');
}
