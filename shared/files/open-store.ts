/** Opens the store of files that the configuration names. */
import type { Config } from '../config/schema.ts';
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
