/** Opens the store of files that the configuration names. */
import type { Config } from '../config/schema.ts';
import type { NamedPart } from '../lifecycle/in-order.ts';
import type { FileStore } from './file-store.ts';
import { FsStore } from './fs-store.ts';
import { S3Store, loadS3Packages } from './s3-store.ts';

/** The store, `undefined` where none is configured. Asks nothing of it yet. Throws `config-invalid` where packages are missing. */
export async function openFileStore(files: Config['files']): Promise<FileStore | undefined> {
  switch (files.store) {
    case 'none':
      return undefined;
    case 'fs':
      return new FsStore(files.directory);
    case 's3':
      return new S3Store(await loadS3Packages(), {
        bucket: files.s3Bucket,
        region: files.s3Region,
        endpoint: files.s3Endpoint === '' ? undefined : files.s3Endpoint,
        credentials:
          files.s3AccessKeyId === ''
            ? undefined
            : { accessKeyId: files.s3AccessKeyId, secretAccessKey: files.s3SecretAccessKey },
      });
  }
}

/** The store as the part of a service: its idle connections end with it. */
export function fileStorePart(store: FileStore | undefined): NamedPart {
  return {
    name: 'file store',
    part: { start: async () => await Promise.resolve(), stop: async () => await Promise.resolve(store?.close()) },
  };
}
