/**
 * The health check of a container, without a shell: `health.js [livez|readyz] [pid]`. Asks the first process, by the port of its role,
 * for `/livez`. Exit 0 where that is well, and for roles that end by themselves.
 */
import { readFileSync } from 'node:fs';
import { request as requestPlain } from 'node:http';
import { request as requestTls } from 'node:https';
import { text } from 'node:stream/consumers';
import { loadConfig } from '../../shared/config/load.ts';
import { toError } from '../../shared/errors/to-error.ts';
import { ROLES } from './roles.ts';

const ANSWER_WITHIN_MS = 4_000;
const SHOWN_CHARACTERS = 1_000;
const [, , asked = 'livez', pid = '1'] = process.argv;
const path = `/${asked}`;
// An init of the engine's own may stand before the program, which then is among its words.
const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
const start = words.findIndex((word) => word.endsWith('image/start.js'));
const { port: setting } = ROLES[words[start + 1] ?? ''] ?? {};

/** The status and what was said with it. */
async function ask(port: number, host: string, isSecure: boolean): Promise<readonly [status: number, said: string]> {
  const options = { host, port, path, timeout: ANSWER_WITHIN_MS };
  return await new Promise((resolve, reject) => {
    // It asks itself, by an address that no certificate has.
    const request = isSecure ? requestTls({ ...options, rejectUnauthorized: false }) : requestPlain(options);
    request.once('response', (response) => {
      text(response).then(
        (said) => resolve([response.statusCode ?? 0, said.trim().slice(0, SHOWN_CHARACTERS)]),
        reject,
      );
    });
    request.once('timeout', () => request.destroy(new Error('no answer in time')));
    request.once('error', reject);
    request.end();
  });
}

if (setting !== undefined) {
  const at = words.indexOf('--config');
  const { http } = loadConfig({ user: 'cli', file: at < 0 ? undefined : words[at + 1] }).config;
  const isEverywhere = http.host === '0.0.0.0' || http.host === '::';
  try {
    const [status, said] = await ask(http[setting], isEverywhere ? '127.0.0.1' : http.host, http.tlsCertFile !== '');
    process.stdout.write(`${path} answers ${status} ${said}\n`);
    process.exit(status === 200 ? 0 : 1);
  } catch (thrown) {
    process.stdout.write(`${path} does not answer: ${toError(thrown).message}\n`);
    process.exit(1);
  }
}
