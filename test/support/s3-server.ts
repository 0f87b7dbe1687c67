/** A server that speaks S3, for one test, on a port and in a folder of its own. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import S3rver from '@20minutes/s3rver';

/** A server. */
export interface S3Server extends AsyncDisposable {
  readonly endpoint: string;
  /** Stops answering. */
  stop(): Promise<void>;
  /** Answers again, at the same address, with what it had. */
  start(): Promise<void>;
}

/** The key pair that the server knows. */
export const S3_KEY = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' };
/** The bucket that is there. */
export const S3_BUCKET = 'warren-files';

/** Starts a server. */
export async function openS3Server(): Promise<S3Server> {
  const directory = await mkdtemp(join(tmpdir(), 'warren-s3-'));
  let port = 0;
  const open = async (): Promise<S3rver> => {
    const server = new S3rver({
      address: '127.0.0.1',
      port,
      directory,
      silent: true,
      allowMismatchedSignatures: true, // it reads the path of a bucket in another way than the SDK signs it
      configureBuckets: [{ name: S3_BUCKET, configs: [] }],
    });
    port = (await server.run()).port;
    return server;
  };
  let server: S3rver | undefined = await open();
  const stop = async (): Promise<void> => {
    const running = server;
    server = undefined;
    if (running === undefined) return;
    running.httpServer.closeAllConnections();
    await running.close();
  };
  return {
    endpoint: `http://127.0.0.1:${port}`,
    stop,
    start: async () => {
      server ??= await open();
    },
    [Symbol.asyncDispose]: async () => {
      await stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
