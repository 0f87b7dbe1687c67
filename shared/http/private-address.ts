/** Addresses that are not of the public internet: what a URL from outside must not make Warren call. */
import { BlockList, isIP, isIPv4 } from 'node:net';

/** Source: the IANA registries of special-purpose addresses, and multicast. */
const V4 = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3],
] as const;
/** Addresses that carry another inside (mapped, NAT64, 6to4, Teredo) count as private whatever that is. */
const V6 = [
  ['::', 96],
  ['::ffff:0:0', 96],
  ['64:ff9b::', 96],
  ['64:ff9b:1::', 48],
  ['100::', 64],
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['fc00::', 7],
  ['fe80::', 9],
  ['ff00::', 8],
] as const;

// A list of each: one with both takes every IPv4 address for one that is mapped into IPv6.
const blockedV4 = new BlockList();
for (const [net, bits] of V4) blockedV4.addSubnet(net, bits, 'ipv4');
const blockedV6 = new BlockList();
for (const [net, bits] of V6) blockedV6.addSubnet(net, bits, 'ipv6');

/** True for an address that must not be called; also for a text that is none. Brackets of a URL may stand around it. */
export function isPrivateAddress(text: string): boolean {
  const address = text.startsWith('[') ? text.slice(1, -1) : text;
  if (isIP(address) === 0) return true;
  return isIPv4(address) ? blockedV4.check(address, 'ipv4') : blockedV6.check(address, 'ipv6');
}
