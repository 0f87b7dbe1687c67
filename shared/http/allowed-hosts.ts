/** The allow-list of hosts that tasks may call. Nothing is allowed that is not listed. */
import { WarrenError } from '../errors/warren-error.ts';

const PATTERN = /^(\*\.)?([a-z0-9-]+(?:\.[a-z0-9-]+)*|\[[0-9a-f:.]+\])(?::(\d{1,5}))?$/;

/**
 * Makes the check of URLs from patterns: `api.example.com` (the scheme's own port), `127.0.0.1:8080`, `*.example.com` (any
 * host below it, not itself). Hosts are compared whole and as URL parsers normalise them, so neither `example.com.evil.net`
 * nor `0x7f.1` slips through. Names are not resolved: who may list a name trusts its DNS. Throws `config-invalid`
 * that names `setting`.
 */
export function allowHosts(patterns: readonly string[], setting = 'httpRequest.allowHosts'): (url: URL) => boolean {
  const exact = new Set<string>();
  const suffixes: { readonly suffix: string; readonly port: string }[] = [];
  for (const pattern of patterns) {
    const [, star, host, port = ''] = PATTERN.exec(pattern.toLowerCase()) ?? [];
    if (host === undefined) {
      throw new WarrenError('config-invalid', {
        field: setting,
        reason: 'each must look like api.example.com, 127.0.0.1:8080 or *.example.com',
      });
    }
    if (star === undefined) exact.add(`${host}:${port}`);
    else suffixes.push({ suffix: `.${host}`, port });
  }
  return ({ protocol, hostname, port }) => {
    if (protocol !== 'http:' && protocol !== 'https:') return false;
    // url.port is empty for the scheme's own port, also when it is written out; patterns may write it out too
    const ports = port === '' ? ['', protocol === 'http:' ? '80' : '443'] : [port];
    return ports.some(
      (one) =>
        exact.has(`${hostname}:${one}`) ||
        suffixes.some((entry) => entry.port === one && hostname.endsWith(entry.suffix)),
    );
  };
}
