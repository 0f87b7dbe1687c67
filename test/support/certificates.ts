/** Certificate authorities and certificates that a test makes for itself. */
import { webcrypto } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import 'reflect-metadata'; // the package below asks for it
import * as x509 from '@peculiar/x509';
import { systemClock } from '../../shared/time/clock.ts';

/** What a certificate says. */
export interface CertificateWish {
  /** Common name. */
  readonly name: string;
  /** Host names and addresses of a server. Default: none. */
  readonly hosts?: readonly string[];
  /** Seconds from now to its end; below 0 it has expired. Default: an hour. */
  readonly endsInSeconds?: number;
}

/** A certificate and its key, in PEM and as files. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
  readonly certFile: string;
  readonly keyFile: string;
}

/** An authority of one test. */
export interface Authority {
  readonly ca: string;
  readonly caFile: string;
  /** Makes a certificate and writes it under its file name. */
  issue(file: string, wish: CertificateWish): Promise<Certificate>;
}

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;
const HOUR_SECONDS = 3_600;
const { subtle } = webcrypto;
x509.cryptoProvider.set(webcrypto as unknown as Parameters<typeof x509.cryptoProvider.set>[0]);

/** Makes an authority whose files lie in `dir`. */
export async function createAuthority(dir: string, name: string): Promise<Authority> {
  const keys = await subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const root = await x509.X509CertificateGenerator.createSelfSigned({
    name: `CN=${name}`,
    keys,
    ...spanOf(HOUR_SECONDS),
    signingAlgorithm: ALGORITHM,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  const caFile = join(dir, `${name}.pem`);
  await writeFile(caFile, root.toString('pem'));
  return {
    ca: root.toString('pem'),
    caFile,
    issue: async (file, { name: subject, hosts = [], endsInSeconds = HOUR_SECONDS }) => {
      const own = await subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
      const made = await x509.X509CertificateGenerator.create({
        subject: `CN=${subject}`,
        issuer: root.subject,
        publicKey: own.publicKey,
        signingKey: keys.privateKey,
        ...spanOf(endsInSeconds),
        signingAlgorithm: ALGORITHM,
        extensions: [
          new x509.BasicConstraintsExtension(false),
          new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth, x509.ExtendedKeyUsage.clientAuth]),
          ...(hosts.length === 0
            ? []
            : [
                new x509.SubjectAlternativeNameExtension(
                  hosts.map((value) => ({ type: isIP(value) === 0 ? 'dns' : 'ip', value })),
                ),
              ]),
        ],
      });
      const pkcs8 = Buffer.from(await subtle.exportKey('pkcs8', own.privateKey));
      const cert = made.toString('pem');
      const key = x509.PemConverter.encode(pkcs8, 'PRIVATE KEY');
      const [certFile, keyFile] = [join(dir, `${file}.pem`), join(dir, `${file}.key`)];
      await writeFile(certFile, cert);
      await writeFile(keyFile, key);
      return { cert, key, certFile, keyFile };
    },
  };
}

function spanOf(endsInSeconds: number): { readonly notBefore: Date; readonly notAfter: Date } {
  const nowMs = systemClock.now().getTime();
  return { notBefore: new Date(nowMs - 2 * HOUR_SECONDS * 1_000), notAfter: new Date(nowMs + endsInSeconds * 1_000) };
}
