/** Where a webhook may go. */
import { expect, test } from '@jest/globals';
import { allowHosts } from '../../../../shared/http/allowed-hosts.ts';
import { isPrivateAddress } from '../../../../shared/http/private-address.ts';
import { webhookUrlFault } from '../../../../shared/http/webhook-url.ts';

const isAllowed = allowHosts(['10.0.0.5:8080', 'hooks.internal']);

test.each([
  'https://hooks.example.com/warren?key=1',
  'https://8.8.8.8/',
  'https://[2606:4700:4700::1111]/',
  'http://10.0.0.5:8080/x',
  'http://hooks.internal/',
  'https://hooks.internal/',
])('%s may be called', (url) => {
  expect(webhookUrlFault(url, isAllowed)).toBeUndefined();
});

test.each([
  ['not a url', /https URL/],
  ['ftp://hooks.example.com/', /https URL/],
  ['https://user:secret@hooks.example.com/', /password/],
  ['http://hooks.example.com/', /allowHosts/],
  ['http://10.0.0.5/', /allowHosts/],
  ['https://10.0.0.5/', /private/],
  ['https://127.0.0.1:9200/', /private/],
  ['https://0x7f.1/', /private/],
  ['https://2130706433/', /private/],
  ['https://[::1]/', /private/],
  ['https://[::ffff:10.0.0.1]/', /private/],
  ['https://localhost/', /private/],
  ['https://api.localhost/', /private/],
  [`https://hooks.example.com/${'x'.repeat(2_100)}`, /2048/],
])('%s may not', (url, reason) => {
  expect(webhookUrlFault(url, isAllowed)).toMatch(reason);
});

test.each([
  ['169.254.169.254', true],
  ['100.64.0.1', true],
  ['172.31.255.255', true],
  ['172.32.0.1', false],
  ['224.0.0.1', true],
  ['255.255.255.255', true],
  ['0.0.0.0', true],
  ['1.1.1.1', false],
  ['fd00::1', true],
  ['fe80::1', true],
  ['ff02::1', true],
  ['64:ff9b::a00:1', true],
  ['2002:a00:1::', true],
  ['::', true],
  ['::7f00:1', true],
  ['2a00:1450:4001::1', false],
  ['hooks.example.com', true],
])('%s is a private address: %s', (address, expected) => {
  expect(isPrivateAddress(address)).toBe(expected);
});
