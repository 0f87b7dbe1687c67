/** What a file is called, on its way from a handler to whoever downloads it. */
import { WarrenError } from '../errors/warren-error.ts';

/** What a handler gets for a file, to put into its result wherever it likes. */
export interface FileReference {
  /** Id of the file. */
  readonly $file: string;
  readonly name: string;
  readonly contentType: string;
  readonly bytes: number;
}

/** What a handler says of a file. */
export interface FileDescription {
  /** 1 to 255 characters; a name, not a path. */
  readonly name: string;
  /** Media type, such as `text/csv; charset=utf-8`. Default `application/octet-stream`. */
  readonly contentType?: string;
}

const LONGEST_NAME = 255;
const LONGEST_TYPE = 200;
const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const MEDIA_TYPE = new RegExp(`^${TOKEN}/${TOKEN}(; ?${TOKEN}=(${TOKEN}|"[\\x20\\x21\\x23-\\x5b\\x5d-\\x7e]*"))*$`);

/** Checks what a handler said. Throws `field-invalid`. */
export function checkDescription(given: FileDescription): Required<FileDescription> {
  const { name, contentType = 'application/octet-stream' } = given;
  const fail = (field: string, reason: string): never => {
    throw new WarrenError('field-invalid', { field, reason });
  };
  if (typeof name !== 'string' || name.length === 0 || name.length > LONGEST_NAME) {
    return fail('name', `must be a text of 1 to ${LONGEST_NAME} characters`);
  }
  // oxlint-disable-next-line no-control-regex -- these are what must not be in it
  if (/[\u0000-\u001f\u007f-\u009f/\\]|\p{Surrogate}/u.test(name) || /^\.{1,2}$/.test(name)) {
    return fail('name', 'must be the name of a file: no path, no control character');
  }
  if (typeof contentType !== 'string' || contentType.length > LONGEST_TYPE || !MEDIA_TYPE.test(contentType)) {
    return fail('contentType', `must be a media type such as text/csv, of at most ${LONGEST_TYPE} characters`);
  }
  return { name, contentType };
}

/**
 * The header that makes a browser save a file under its name instead of showing it. The name goes twice, once in ASCII for old
 * clients (RFC 6266, RFC 8187). What turns the direction of text is left out: it can hide what a name ends in.
 */
export function contentDisposition(name: string): string {
  const shown = name.replaceAll(/\p{Bidi_Control}/gu, '');
  const ascii = shown.replaceAll(/[^\x20-\x7e]/g, '_').replaceAll(/["\\%]/g, '_');
  const encoded = encodeURIComponent(shown).replaceAll(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${ascii}"; filename*=UTF-8''${encoded}`;
}
