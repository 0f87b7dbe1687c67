/**
 * Who may call an API. Bearer tokens, each with a name and a role; on a loopback address also programs of this machine
 * without one, but no web page that a browser on it happens to show.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ROLES } from '../config/format.ts';
import type { Role, Token } from '../config/format.ts';
import { isLoopback } from '../config/load.ts';
import { WarrenError } from '../errors/warren-error.ts';

/** Who acts, as every action records it. */
export interface Actor {
  readonly name: string;
  readonly role: Role;
  /** IP address that the request came from; absent for what a service does by itself. Behind a proxy it is the proxy's. */
  readonly address?: string;
}

/** A program of this machine that sent no token. */
export const LOCAL_ACTOR: Actor = { name: 'local', role: 'admin' };

/** Finds who calls, from the headers. Throws `token-missing`, `token-invalid`, `origin-refused`. */
export type Authenticate = (headers: IncomingHttpHeaders) => Actor;

/** Makes the check for a server that listens on `host`. Throws `config-invalid` beyond loopback without tokens. */
export function createAuthenticate(host: string, tokens: readonly Token[]): Authenticate {
  const isLocal = isLoopback(host);
  if (!isLocal && tokens.length === 0) {
    throw new WarrenError('config-invalid', {
      faults: ['http.tokens must hold a token when http.host is not loopback'],
    });
  }
  const known = tokens.map(({ name, role, token }) => ({ actor: { name, role }, digest: digestOf(token) }));
  return (headers) => {
    const { authorization } = headers;
    if (authorization !== undefined) return findActor(authorization, known);
    if (!isLocal) throw new WarrenError('token-missing');
    refuseWebPages(headers);
    return LOCAL_ACTOR;
  };
}

/** The address of a socket as it is recorded: IPv4 as IPv4, also where the server listens for both. */
export function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '');
}

/** Throws `role-insufficient` unless the actor may do what needs `role`: each role may do what those before it may. */
export function checkRole(actor: Actor, role: Role): void {
  if (ROLES.indexOf(actor.role) < ROLES.indexOf(role)) {
    throw new WarrenError('role-insufficient', { needed: role, role: actor.role });
  }
}

/** Digests have one length and tell nothing by where they differ, and every token is compared. */
function findActor(authorization: string, known: readonly { actor: Actor; digest: Buffer }[]): Actor {
  const token = /^bearer +([\x21-\x7e]{1,512})$/i.exec(authorization)?.[1];
  let found: Actor | undefined;
  if (token !== undefined) {
    const digest = digestOf(token);
    for (const each of known) if (timingSafeEqual(each.digest, digest)) found = each.actor;
  }
  if (found === undefined) throw new WarrenError('token-invalid');
  return found;
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/**
 * A page can make a browser send requests here: from another origin (`Origin`, `Sec-Fetch-Site` tell), or, by a name that
 * it points to 127.0.0.1, from what looks like our own (`Host` tells: DNS rebinding). Source: fetch.spec.whatwg.org.
 */
function refuseWebPages({ host, origin, 'sec-fetch-site': site }: IncomingHttpHeaders): void {
  const refuse = (header: string): never => {
    throw new WarrenError('origin-refused', { header });
  };
  if (host === undefined || !isLoopback(host.replace(/:\d{1,5}$/, ''))) return refuse('host');
  if (origin !== undefined && !sameOrigin(origin, host)) return refuse('origin');
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return refuse('sec-fetch-site');
  return undefined;
}

function sameOrigin(origin: string, host: string): boolean {
  return ['http', 'https'].some((scheme) => origin.toLowerCase() === `${scheme}://${host.toLowerCase()}`);
}
