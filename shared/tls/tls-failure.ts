/** Says in one line why a TLS handshake failed, and what to do about it. Knows nothing secret. */
import { codeOf, toError } from '../errors/to-error.ts';

/** What the reader may change: names of settings or options. */
export interface TlsSettingNames {
  readonly ca: string;
  /** Client certificate and its key. */
  readonly cert: string;
}

/** The names in one group of the configuration. */
export function tlsSettingsOf(group: 'amqp' | 'postgres'): TlsSettingNames {
  return { ca: `${group}.tlsCaFile`, cert: `${group}.tlsCertFile and ${group}.tlsKeyFile` };
}

const RULES: readonly (readonly [found: RegExp, said: (names: TlsSettingNames) => string])[] = [
  // Source: nodejs.org/api/tls.html, "X509 certificate error codes".
  [
    /^(UNABLE_TO_|DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED_CERT|CERT_SIGNATURE_FAILURE|CERT_UNTRUSTED|INVALID_CA|INVALID_PURPOSE|CERT_CHAIN_TOO_LONG)/,
    ({ ca }) => `nobody trusted here has signed the server's certificate; name the file of its CA in ${ca}`,
  ],
  [/^CERT_HAS_EXPIRED/, () => "the server's certificate, or its CA's, has expired; renew it there"],
  [/^CERT_NOT_YET_VALID/, () => "the server's certificate is not valid yet; compare the clocks of both machines"],
  [/^CERT_REVOKED/, () => "the server's certificate was revoked; renew it there"],
  // Alerts of the peer. OpenSSL 3.2 renamed "sslv3 alert" to "ssl/tls alert". Source: RFC 8446, section 6.
  [/alert.certificate.required/i, ({ cert }) => `the server wants a client certificate; name it in ${cert}`],
  [
    /alert.(unknown.ca|bad.certificate|certificate.(expired|revoked|unknown)|unsupported.certificate|decrypt.error|access.denied)/i,
    ({ cert }) => `the server does not take the client certificate of ${cert}: is it of its CA, and still valid?`,
  ],
  [
    /alert.handshake.failure/i,
    ({ cert }) => `the server broke off the handshake; where it wants a client certificate, name it in ${cert}`,
  ],
  [
    /alert.protocol.version|unsupported.protocol/i,
    () => 'the server speaks no version of TLS that is safe (1.2 or newer)',
  ],
];

/** The reason for people, or `undefined` where TLS is not to blame. */
export function tlsFailure(thrown: unknown, names: TlsSettingNames): string | undefined {
  const code = codeOf(thrown) ?? '';
  const { message } = toError(thrown);
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
    return `the server's certificate is made for ${namesOf(thrown) ?? 'other names'}, not for the host of the URL; use one of its names`;
  }
  const text = `${code} ${message}`;
  return RULES.find(([found]) => found.test(text))?.[1](names);
}

/** The names in a certificate that node refused, as it shows them: `DNS:localhost, IP Address:127.0.0.1`. */
function namesOf(thrown: unknown): string | undefined {
  const { cert } = thrown as { readonly cert?: { readonly subjectaltname?: unknown } };
  return typeof cert?.subjectaltname === 'string' ? cert.subjectaltname.slice(0, 200) : undefined;
}
