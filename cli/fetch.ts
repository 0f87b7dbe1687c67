/** `fetch` that trusts a CA of one's own: node's own takes none but at its start (NODE_EXTRA_CA_CERTS). */
import { readFile } from 'node:fs/promises';
import { X509Certificate } from 'node:crypto';
import { codeOf } from '../shared/errors/to-error.ts';
import { CliError } from './cli-error.ts';
import { EXIT_CODES } from './exit-codes.ts';

/** Makes it from a file of certificates (PEM), in the place of those of the system. Throws a CliError that names the setting. */
export async function fetchTrusting(file: string, setting: string): Promise<typeof globalThis.fetch> {
  const ca = await readFile(file, 'utf8').catch((thrown: unknown) =>
    fail(setting, `cannot be read: ${codeOf(thrown) ?? 'unknown reason'}`),
  );
  try {
    new X509Certificate(ca);
  } catch {
    return fail(setting, 'holds no certificate (PEM)');
  }
  const { Agent, fetch } = await import('undici');
  const dispatcher = new Agent({ connect: { ca } });
  return (async (input: string, init: object) =>
    await fetch(input, { ...init, dispatcher })) as unknown as typeof globalThis.fetch;
}

function fail(field: string, reason: string): never {
  throw new CliError(EXIT_CODES.configuration, {
    code: 'config-invalid',
    title: 'The file of certificates cannot be used.',
    field,
    reason,
  });
}
