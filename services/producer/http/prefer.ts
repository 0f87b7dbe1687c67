/** `Prefer: wait=N` (RFC 7240): an answer that waits for the task to end, as long as the caller has patience. */
import type { Follower } from '../follower.ts';

/** What waiting needs. */
export interface WaitDeps {
  readonly follower: Pick<Follower, 'whenEnded' | 'isFull'>;
  /** Seconds that a request may wait at most. */
  readonly maxWaitSeconds: number;
}

/** What a request may say, and whether it still listens. */
interface Asking {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly raw: {
    readonly socket: {
      once(event: 'close', listener: () => void): unknown;
      off(event: 'close', listener: () => void): unknown;
    };
  };
}

/** Where a preference is told of as honoured. */
interface Answering {
  header(name: string, value: string): unknown;
}

const WAIT = /^wait\s*=\s*"?(\d{1,9})"?\s*(?:;|$)/i;

/** Seconds that a request prefers to wait; `undefined` where it says nothing of it. What cannot be read is ignored, as RFC 7240 wants it. */
export function preferredWaitSeconds(header: string | readonly string[] | undefined): number | undefined {
  if (header === undefined) return undefined;
  // The first of the same name counts.
  for (const preference of [header].flat().join(',').split(',')) {
    const found = WAIT.exec(preference.trim())?.[1];
    if (found !== undefined) return Number(found);
  }
  return undefined;
}

/**
 * Waits for the task, if the request prefers that, and says so in the answer. True where it has ended meanwhile. Where too many
 * wait already the preference is not honoured: the answer comes at once.
 */
export async function waitAsPreferred(
  request: Asking,
  reply: Answering,
  taskId: string,
  { follower, maxWaitSeconds }: WaitDeps,
): Promise<boolean> {
  const wanted = preferredWaitSeconds(request.headers['prefer']);
  if (wanted === undefined) return false;
  void reply.header('vary', 'prefer');
  if (wanted === 0 || follower.isFull) return false;
  const seconds = Math.min(wanted, maxWaitSeconds);
  void reply.header('preference-applied', `wait=${seconds}`);
  const gone = new AbortController();
  const { socket } = request.raw;
  const onClose = (): void => gone.abort();
  socket.once('close', onClose);
  try {
    return await follower.whenEnded(taskId, seconds * 1_000, gone.signal);
  } finally {
    socket.off('close', onClose);
  }
}
