import { describe, expect, test } from '@jest/globals';
import { CHANNEL_KINDS } from '../../../../shared/config/alert-channels.ts';
import { loadConfig } from '../../../../shared/config/load.ts';
import { renderConfig } from '../../../../shared/config/print.ts';
import { readSource } from '../../../support/source-files.ts';

const SECRET = `whsec_${Buffer.from('geheim geheim geheim geheim geheim').toString('base64')}`;
const CHANNELS = [
  { name: 'hook', kind: 'standard', url: 'https://example.com/hook', secret: SECRET },
  { name: 'slack', kind: 'slack', url: 'https://hooks.example.com/services/geheim' },
  {
    name: 'ding',
    kind: 'dingtalk',
    url: 'https://ding.example.com/robot/send?access_token=geheim',
    secret: 'SECgeheim',
  },
  { name: 'wecom', kind: 'wecom', url: 'https://wecom.example.com/send?key=geheim' },
  {
    name: 'mail',
    kind: 'email',
    url: 'smtps://u:geheim@mail.example.com',
    from: 'w@example.com',
    to: ['a@example.com'],
  },
];

function faultsOf(channels: unknown, sendTo?: string): readonly string[] {
  try {
    const WARREN_ALERTS_CHANNELS = typeof channels === 'string' ? channels : JSON.stringify(channels);
    loadConfig({ user: 'worker', env: { WARREN_ALERTS_CHANNELS, WARREN_ALERTS_SEND_TO: sendTo } });
    return [];
  } catch (thrown) {
    return (thrown as { facts: { faults: string[] } }).facts.faults;
  }
}

test('channels of every kind are taken, and printed without what is secret', () => {
  const loaded = loadConfig({ user: 'worker', env: { WARREN_ALERTS_CHANNELS: JSON.stringify(CHANNELS) } });
  expect(loaded.config.alerts.channels).toEqual(CHANNELS);
  const printed = renderConfig(loaded);
  expect(printed).toContain(
    'alerts.channels = hook (standard), slack (slack), ding (dingtalk), wecom (wecom), mail (email)',
  );
  expect(printed).not.toContain('geheim');
  expect(printed).not.toContain(SECRET);
});

describe('a fault names the channel and what to do, and repeats no secret:', () => {
  const [hook, , ding, , mail] = CHANNELS;
  test.each([
    ['no list', 'geheim', 'must be a JSON list'],
    ['no object', ['geheim'], 'the kind of channel 1 must be one of standard, slack'],
    ['another kind', [{ ...hook, kind: 'geheim' }], 'the kind of channel 1 must be one of standard, slack'],
    [
      'a member too many',
      [{ ...hook, to: ['geheim'] }],
      'channel 1 (standard) must have nothing but name, kind, url, secret',
    ],
    ['no name', [{ ...hook, name: 'Geheim 1' }], 'its name must be 1 to 40 of a-z, 0-9 and -'],
    ['a name twice', [hook, hook], 'must name each channel once; that of channel 2 stands twice'],
    ['no URL', [{ ...hook, url: 'geheim' }], 'its url must be a URL that begins with https:// or http://'],
    [
      'no secret to sign with',
      [{ ...hook, secret: undefined }],
      'its secret must be whsec_ and 24 to 64 bytes in base64',
    ],
    [
      'a short secret',
      [{ ...hook, secret: 'whsec_Z2VoZWlt' }],
      'its secret must be whsec_ and 24 to 64 bytes in base64',
    ],
    ['no text for a secret', [{ ...ding, secret: 7 }], 'its secret must be printable ASCII'],
    [
      'no mail server',
      [{ ...mail, url: 'https://geheim.example.com' }],
      'its url must be a URL that begins with smtp://',
    ],
    ['no sender', [{ ...mail, from: 'Geheim <w@example.com>' }], 'its from must be a plain e-mail address'],
    [
      'a header for a receiver',
      [{ ...mail, to: ['a@example.com\r\nBcc: geheim@example.com'] }],
      'its to must be a list',
    ],
    ['no receivers', [{ ...mail, to: [] }], 'its to must be a list of 1 to 50 plain e-mail addresses'],
  ])('%s', (_what, channels, fault) => {
    const faults = faultsOf(channels);
    expect(faults).toEqual([expect.stringMatching(/^alerts\.channels must /)]);
    expect(faults[0]).toContain(fault);
    expect(faults[0]).not.toMatch(/geheim/i);
  });
});

test('alerts cannot be sent to a channel that is not there', () => {
  expect(faultsOf(CHANNELS, 'hook,pager')).toEqual(['alerts.sendTo names pager, which alerts.channels does not have']);
  // The handler knows the names alone.
  expect(faultsOf([], 'hook,pager')).toEqual([]);
});

test('the example of the guide has a channel of each kind, and is taken', () => {
  const [, json = ''] = /```json\n([\s\S]*?)```/.exec(readSource('docs/guides/alerts.md')) ?? [];
  const { alerts } = JSON.parse(json) as { alerts: { channels: { kind: string }[]; sendTo: string[] } };
  expect(alerts.channels.map(({ kind }) => kind).toSorted()).toEqual(CHANNEL_KINDS.toSorted());
  expect(faultsOf(alerts.channels, alerts.sendTo.join(','))).toEqual([]);
});
