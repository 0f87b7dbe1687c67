/** The certificate of an HTTP server, which changes under it without a restart. */
import type { SecureContextOptions, TlsOptions } from 'node:tls';
import type { Logger } from '../observability/log.ts';
import type { Clock } from '../time/clock.ts';
import type { TlsFiles, TlsMaterial } from '../tls/tls-files.ts';

/** Milliseconds between two looks at the files. By content, since a mounted secret is swapped by its folder's link. */
const LOOK_EVERY_MS = 10_000;
/** Milliseconds that a handshake may take. */
const HANDSHAKE_WITHIN_MS = 10_000;

/** What the watch needs. */
export interface CertificateDeps {
  readonly clock: Clock;
  readonly log: Logger;
}

/** How `node:https` is to serve with these files. Throws `config-invalid`. */
export function serverTls(files: TlsFiles): TlsOptions {
  return { ...files.read(), minVersion: 'TLSv1.2', handshakeTimeout: HANDSHAKE_WITHIN_MS };
}

/** Hands the server each new certificate, for connections from then on; the returned function ends that. */
export function watchCertificate(
  { clock, log }: CertificateDeps,
  files: TlsFiles,
  server: { setSecureContext(options: SecureContextOptions): void },
): () => void {
  let known = files.current();
  let cancel: () => void;
  const look = (): void => {
    const material = files.current();
    if (!isSame(known, material)) {
      known = material;
      server.setSecureContext({ ...material, minVersion: 'TLSv1.2' });
      log.info('certificate of the http server renewed');
    }
    cancel = clock.after(LOOK_EVERY_MS, look);
  };
  cancel = clock.after(LOOK_EVERY_MS, look);
  return () => cancel();
}

function isSame(one: TlsMaterial, other: TlsMaterial): boolean {
  return one.cert === other.cert && one.key === other.key;
}
