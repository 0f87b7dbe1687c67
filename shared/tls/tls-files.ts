/** Certificates and keys by file: of connections that we make, and of servers that we are. Read anew, for they are renewed. */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { codeOf, toError } from '../errors/to-error.ts';
import { isWarrenError, WarrenError } from '../errors/warren-error.ts';
import type { Logger } from '../observability/log.ts';

/** Which files; an empty name is none. */
export interface TlsFileNames {
  readonly tlsCaFile?: string;
  readonly tlsCertFile: string;
  readonly tlsKeyFile: string;
}

/** What is in the files, in PEM, as `node:tls` takes it. The key is a secret. */
export interface TlsMaterial {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** The files of one group of settings: `amqp`, `postgres` or `http`. */
export class TlsFiles {
  readonly group: string;
  readonly #log: Logger;
  readonly #names: TlsFileNames;
  #last: TlsMaterial | undefined;
  #hasFailed = false;

  constructor(log: Logger, group: string, { tlsCaFile = '', tlsCertFile, tlsKeyFile }: TlsFileNames) {
    this.group = group;
    this.#log = log;
    this.#names = { tlsCaFile, tlsCertFile, tlsKeyFile };
  }

  /** True where no file is named: TLS is then as the system, or the URL, has it. */
  get isEmpty(): boolean {
    return Object.values(this.#names).every((name) => name === '');
  }

  /** Reads and checks all. Throws `config-invalid` with a line for each fault, which names the setting and what to do. */
  read(): TlsMaterial {
    const faults: string[] = [];
    const pem = (name: keyof TlsFileNames): string | undefined => this.#readFile(name, faults);
    const [ca, cert, key] = [pem('tlsCaFile'), pem('tlsCertFile'), pem('tlsKeyFile')];
    for (const [name, text] of [['tlsCaFile', ca] as const, ['tlsCertFile', cert] as const]) {
      if (text !== undefined && !isCertificate(text))
        faults.push(`${this.#named(name)}, which holds no certificate (PEM)`);
    }
    const material: TlsMaterial = {
      ...(ca === undefined ? {} : { ca }),
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
    };
    const fault = faults.length > 0 ? undefined : faultOf(material);
    if (fault !== undefined) faults.push(`${this.#named('tlsKeyFile')}: ${fault}`);
    if (faults.length > 0) throw new WarrenError('config-invalid', { faults });
    this.#last = material;
    return material;
  }

  /**
   * As `read`, but where a renewal is half written the material of before goes on being used, which is logged. Throws only
   * where nothing was ever read.
   */
  current(): TlsMaterial {
    const before = this.#last;
    if (before === undefined) return this.read();
    try {
      const material = this.read();
      this.#hasFailed = false;
      return material;
    } catch (thrown) {
      const facts = isWarrenError(thrown, 'config-invalid') ? thrown.facts : { err: toError(thrown) };
      if (!this.#hasFailed) this.#log.warn('certificate files are not taken, the last ones stay', { ...facts });
      this.#hasFailed = true;
      return before;
    }
  }

  #readFile(name: keyof TlsFileNames, faults: string[]): string | undefined {
    const file = this.#names[name] ?? '';
    if (file === '') return undefined;
    try {
      return readFileSync(file, 'utf8');
    } catch (thrown) {
      faults.push(`${this.#named(name)}, which cannot be read (${codeOf(thrown) ?? 'unreadable'})`);
      return undefined;
    }
  }

  #named(name: keyof TlsFileNames): string {
    return `${this.group}.${name} names ${JSON.stringify(this.#names[name] ?? '')}`;
  }
}

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false; // the caller says so
  }
}

/** Why certificate and key cannot be used together; never with a piece of the key. */
function faultOf(material: TlsMaterial): string | undefined {
  try {
    createSecureContext(material);
    return undefined;
  } catch (thrown) {
    const code = codeOf(thrown) ?? 'unknown reason';
    if (code.includes('KEY_VALUES_MISMATCH')) return 'the key is not that of the certificate';
    if (/PASSWORD|BAD_DECRYPT|INTERRUPTED_OR_CANCELLED|MISSING_PASSPHRASE/.test(code))
      return 'the key is encrypted; store it without a passphrase';
    return `no private key (PEM) that can be used (${code})`;
  }
}
