/** What of a channel must not stand in an error: errors are stored with the attempt, logged and shown. */

/** What is called, with what it is signed with. */
interface Called {
  readonly url: string;
  readonly secret?: string | undefined;
}

const LONGEST_SHOWN = 200;
/** Shorter pieces of a path are words (`hooks`, `v1`), and taking them out would make nonsense of the text. */
const SHORTEST_SECRET_STEP = 8;

/** What another server said, in one line of bounded length, with everything secret of the channel taken out. */
export function withoutSecrets(said: string, channel: Called): string {
  let shown = said;
  for (const secret of secretsOf(channel)) shown = shown.replaceAll(secret, '***');
  return shown
    .replaceAll(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, LONGEST_SHOWN);
}

/** Longest first: a part of a secret must not be taken out of the middle of it. */
function secretsOf(channel: Called): readonly string[] {
  const { href, pathname, search, searchParams, username, password } = new URL(channel.url);
  const pieces = [
    href,
    ...(pathname.length > 1 ? [pathname + search, pathname] : []),
    search,
    ...searchParams.values(),
    ...pathname.split('/').filter((step) => step.length >= SHORTEST_SECRET_STEP),
    ...[username, password].flatMap((piece) => [piece, decodeURIComponent(piece)]),
    ...(channel.secret === undefined ? [] : [channel.secret]),
  ];
  // A mail server quotes what it was told in base64.
  const encoded = [`\0${decodeURIComponent(username)}\0${decodeURIComponent(password)}`, decodeURIComponent(password)]
    .filter((piece) => piece.length > 2)
    .map((piece) => Buffer.from(piece).toString('base64'));
  const found = [...pieces, ...encoded].flatMap((piece) => [piece, encodeURIComponent(piece)]);
  return [...new Set(found.filter((piece) => piece.length >= 4))].toSorted((a, b) => b.length - a.length);
}
