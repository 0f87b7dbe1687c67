/** The setting of where alerts go: channels, each with the address and the secret that it needs. */
import { checkUrl, membersOf, parseJson } from './format.ts';
import type { Setting } from './format.ts';

/** The kinds of channels. */
export const CHANNEL_KINDS = ['standard', 'slack', 'dingtalk', 'wecom', 'email'] as const;
/** One of `CHANNEL_KINDS`. */
export type ChannelKind = (typeof CHANNEL_KINDS)[number];

/** Where alerts can go. */
export type AlertChannel = WebhookChannel | EmailChannel;

/** A channel that is called over HTTP. */
export interface WebhookChannel {
  /** How `alerts.sendTo` calls it. */
  readonly name: string;
  readonly kind: Exclude<ChannelKind, 'email'>;
  /** Of Slack, DingTalk and WeCom it is the secret itself, or holds it. */
  readonly url: string;
  /** What `standard` (`whsec_…`, base64) and `dingtalk` (`SEC…`) sign with. */
  readonly secret?: string;
}

/** A channel over SMTP. */
export interface EmailChannel {
  readonly name: string;
  readonly kind: 'email';
  /** `smtps://user:password@host:465`, or `smtp://…:587`, which changes to TLS before it says the password. */
  readonly url: string;
  readonly from: string;
  readonly to: readonly string[];
}

/** Name of a channel: it is also a part of a message id, and shown in errors. */
export const CHANNEL_NAME = /^[a-z0-9][a-z0-9-]{0,39}$/;
/** What `CHANNEL_NAME` takes, in words. */
export const CHANNEL_NAME_IN_WORDS = '1 to 40 of a-z, 0-9 and -';

const MOST_CHANNELS = 50;
const MEMBERS: Readonly<Record<ChannelKind, readonly string[]>> = {
  standard: ['name', 'kind', 'url', 'secret'],
  slack: ['name', 'kind', 'url'],
  dingtalk: ['name', 'kind', 'url', 'secret'],
  wecom: ['name', 'kind', 'url'],
  email: ['name', 'kind', 'url', 'from', 'to'],
};
/** 24 to 64 bytes, as the specification of Standard Webhooks wants them. */
export const STANDARD_SECRET = /^(whsec_)?(?=.{32,88}$)([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const DINGTALK_SECRET = /^[\x21-\x7e]{1,200}$/;
const ADDRESS = /^[^\s@<>,;:"()[\]\\]{1,64}@[A-Za-z0-9.-]{1,253}$/;

/** Channels: a JSON list. Faults name the channel by its place and its member, and never repeat a value. */
export function alertChannels(doc: string): Setting<readonly AlertChannel[]> {
  const allowed = `JSON list of {name, kind, url, …}; kinds ${CHANNEL_KINDS.join(', ')}`;
  return {
    doc,
    default: [],
    allowed,
    sensitive: true,
    mask: (value) => (value.length === 0 ? 'none' : value.map(({ name, kind }) => `${name} (${kind})`).join(', ')),
    read: (given) => (typeof given === 'string' ? (parseJson(given) ?? given) : given),
    format: (given) => {
      if (!Array.isArray(given) || given.length > MOST_CHANNELS) {
        throw new Error(`must be a ${allowed}; at most ${MOST_CHANNELS}`);
      }
      const names = new Set<unknown>();
      for (const [index, item] of (given as unknown[]).entries()) {
        const name = checkChannel(item, `channel ${index + 1}`);
        if (names.has(name)) throw new Error(`must name each channel once; that of channel ${index + 1} stands twice`);
        names.add(name);
      }
    },
  };
}

/** Throws where the channel cannot be used; gives its name. */
function checkChannel(item: unknown, which: string): string {
  const kind = CHANNEL_KINDS.find((each) => each === (item as { kind?: unknown } | null)?.kind);
  if (kind === undefined)
    throw new Error(`must be a list of channels; the kind of ${which} must be one of ${CHANNEL_KINDS.join(', ')}`);
  const wanted = MEMBERS[kind];
  const { name, url, secret, from, to } = membersOf(
    item,
    wanted,
    `must be a list of channels; ${which} (${kind}) must have nothing but ${wanted.join(', ')}`,
  );
  const fail = (what: string): never => {
    throw new Error(`must be a list of channels; ${which} (${kind}): ${what}`);
  };
  if (typeof name !== 'string' || !CHANNEL_NAME.test(name)) return fail(`its name must be ${CHANNEL_NAME_IN_WORDS}`);
  try {
    checkUrl(url, kind === 'email' ? ['smtp', 'smtps'] : ['https', 'http']);
  } catch (thrown) {
    return fail(`its url ${(thrown as Error).message}`);
  }
  if (kind === 'standard' && (typeof secret !== 'string' || !STANDARD_SECRET.test(secret))) {
    return fail('its secret must be whsec_ and 24 to 64 bytes in base64');
  }
  if (kind === 'dingtalk' && secret !== undefined && (typeof secret !== 'string' || !DINGTALK_SECRET.test(secret))) {
    return fail('its secret must be printable ASCII, as the robot shows it');
  }
  if (kind === 'email') {
    const isList = Array.isArray(to) && to.length > 0 && to.length <= 50;
    if (typeof from !== 'string' || !ADDRESS.test(from)) return fail('its from must be a plain e-mail address');
    if (!isList || !(to as unknown[]).every((each) => typeof each === 'string' && ADDRESS.test(each))) {
      return fail('its to must be a list of 1 to 50 plain e-mail addresses');
    }
  }
  return name;
}
