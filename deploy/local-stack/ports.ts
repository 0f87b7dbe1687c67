/** Free ports on the loopback address. */
import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';
import { StackFailure } from './failure.ts';

/** Below the range from which the system takes the ports of outgoing connections, or a kept port would be taken now and then. */
const FIRST_PORT = 21_000;
const LAST_PORT = 31_999;

/** A port of 127.0.0.1 that nobody listens on, none of `taken`. */
export async function findFreePort(taken: readonly number[]): Promise<number> {
  for (let tried = 0; tried < 200; tried += 1) {
    const port = randomInt(FIRST_PORT, LAST_PORT + 1);
    if (!taken.includes(port) && (await isPortFree(port))) return port;
  }
  throw new StackFailure(`no free port from ${FIRST_PORT} to ${LAST_PORT} on 127.0.0.1`);
}

/** True when a listener of ours could have the port. */
export async function isPortFree(port: number): Promise<boolean> {
  return await new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)));
  });
}
