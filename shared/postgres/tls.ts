/** How a URL and the files of certificates say that Postgres is to be reached by TLS. */
import { checkServerIdentity } from 'node:tls';
import type { ConnectionOptions } from 'node:tls';
import { WarrenError } from '../errors/warren-error.ts';
import type { TlsFiles } from '../tls/tls-files.ts';

/** What pg is told of TLS: nothing (the environment says it), `false`, or how to check. */
export type PgTls = ConnectionOptions | false | undefined;

/** `verify-ca` does not look at the host name, `no-verify` at nothing. */
type Mode = 'disable' | 'verify-full' | 'verify-ca' | 'no-verify';

/**
 * libpq's names. `require` checks as `verify-full` does: what is not checked can be read by whoever stands between.
 * Source: postgresql.org/docs/current/libpq-ssl.html.
 */
const MODES: ReadonlyMap<string, Mode> = new Map([
  ['disable', 'disable'],
  ['require', 'verify-full'],
  ['verify-ca', 'verify-ca'],
  ['verify-full', 'verify-full'],
  ['no-verify', 'no-verify'],
]);
const WORDS_OF_SSL: ReadonlyMap<string, Mode> = new Map([
  ['true', 'verify-full'],
  ['1', 'verify-full'],
  ['no-verify', 'no-verify'],
  ['false', 'disable'],
  ['0', 'disable'],
]);
/** Settings of ours, which alone say where the files are: pg would let those of the URL win. */
const BY_SETTING = { sslrootcert: 'tlsCaFile', sslcert: 'tlsCertFile', sslkey: 'tlsKeyFile' } as const;

/**
 * Takes what the URL says of TLS out of it and gives what pg is to be told, the files read anew at each call. Throws
 * `config-invalid` for what cannot be meant.
 */
export function takeTls(url: URL, files: TlsFiles): () => PgTls {
  for (const [parameter, setting] of Object.entries(BY_SETTING)) {
    if (url.searchParams.has(parameter))
      throw invalid(`${parameter} in it is not read; name the file in postgres.${setting}`);
  }
  const mode = takeMode(url.searchParams) ?? (files.isEmpty ? undefined : 'verify-full');
  if (mode === undefined) return () => undefined;
  if (mode === 'disable') {
    if (!files.isEmpty)
      throw invalid('it says sslmode=disable, and postgres.tlsCaFile or postgres.tlsCertFile is given');
    return () => false;
  }
  return () => ({ ...files.current(), ...checksOf(mode, url.hostname.replaceAll(/^\[|\]$/g, '')) });
}

function checksOf(mode: Exclude<Mode, 'disable'>, host: string): ConnectionOptions {
  if (mode === 'no-verify') return { rejectUnauthorized: false };
  if (mode === 'verify-ca') return { checkServerIdentity: () => undefined };
  // By itself pg compares the certificate with "localhost" where the host is an address.
  return host === '' ? {} : { checkServerIdentity: (_name, certificate) => checkServerIdentity(host, certificate) };
}

function takeMode(params: URLSearchParams): Mode | undefined {
  const [sslmode, ssl] = [params.get('sslmode'), params.get('ssl')];
  params.delete('sslmode');
  params.delete('ssl');
  if (sslmode === 'prefer' || sslmode === 'allow') {
    throw invalid(
      `sslmode=${sslmode} goes without TLS where a server has none; say verify-full, verify-ca, no-verify or disable`,
    );
  }
  const mode = sslmode === null ? WORDS_OF_SSL.get(ssl ?? '') : MODES.get(sslmode);
  if (mode === undefined && (sslmode ?? ssl) !== null) {
    throw invalid('its sslmode must be verify-full, verify-ca, require, no-verify or disable');
  }
  return mode;
}

function invalid(reason: string): WarrenError {
  return new WarrenError('config-invalid', { faults: [`postgres.url: ${reason}`] });
}
