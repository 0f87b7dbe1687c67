/** What the URL of a webhook may be: checked where it comes in, and again where it is called. */
import { isIP } from 'node:net';
import { countCharacters } from '../text/characters.ts';
import { allowHosts } from './allowed-hosts.ts';
import { isPrivateAddress } from './private-address.ts';

const LONGEST_URL = 2_048;

/** The rule for URLs of webhooks where these hosts may have any address, and http. Throws `config-invalid`. */
export function webhookRuleOf(allowed: readonly string[]): (url: string) => string | undefined {
  const isAllowed = allowHosts(allowed, 'webhooks.allowHosts');
  return (url) => webhookUrlFault(url, isAllowed);
}

/**
 * Why a URL cannot be that of a webhook, in words; `undefined` where it can. `isAllowed` is the allow-list: what is on it may have
 * any address, and http. Names are not resolved here; the call itself refuses those that lead to private addresses.
 */
export function webhookUrlFault(text: string, isAllowed: (url: URL) => boolean): string | undefined {
  if (countCharacters(text) > LONGEST_URL) return `must be at most ${LONGEST_URL} characters`;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== 'https:' && url.protocol !== 'http:')) return 'must be an https URL';
  if (url.username !== '' || url.password !== '') return 'must not hold a user name or a password';
  if (isAllowed(url)) return undefined;
  const host = url.hostname;
  if (url.protocol !== 'https:') return 'must be an https URL; http only to hosts on webhooks.allowHosts';
  const isAddress = host.startsWith('[') || isIP(host) !== 0;
  const isLocalName = host === 'localhost' || host.endsWith('.localhost');
  if (isLocalName || (isAddress && isPrivateAddress(host))) {
    return 'leads to a private address, and its host is not on webhooks.allowHosts';
  }
  return undefined;
}
