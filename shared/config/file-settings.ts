/** Settings of the store of files, of links, and of how long files are kept. */
import { integer, oneOf, secretText, text } from './format.ts';

const DAY_MS = 86_400_000;

/** The group `files`. */
export const FILE_SETTINGS = {
  store: oneOf(
    'Where files of handlers, large results and large inputs are kept; none: there are none. The same for all services.',
    'none',
    ['none', 'fs', 's3'],
  ),
  directory: text(
    'With fs: folder of the files, which every producer and worker must reach under this path.',
    '',
    /^(\/[^\0]{1,1023})?$/,
    'an absolute path, or empty',
  ),
  s3Bucket: text(
    'With s3: name of the bucket.',
    '',
    /^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?$/,
    'the name of a bucket, or empty',
  ),
  s3Region: text('With s3: region of the bucket.', 'us-east-1', /^[a-z0-9-]{1,50}$/, 'the name of a region'),
  s3Endpoint: text(
    "With s3: URL of a server that is compatible with S3; empty: Amazon's.",
    '',
    /^(https?:\/\/[^\s/@?#]{1,255}\/?)?$/,
    'http://host:port or https://host:port, or empty',
  ),
  s3AccessKeyId: secretText(
    'With s3: id of the access key; empty: as the AWS SDK finds it, such as by the role of the machine.',
    /^[\x21-\x7e]{0,256}$/,
    'up to 256 printable ASCII characters',
  ),
  s3SecretAccessKey: secretText(
    'With s3: the secret of the access key.',
    /^[\x21-\x7e]{0,256}$/,
    'up to 256 printable ASCII characters',
  ),
  maxBytes: integer('Bytes that a file or a large result may have.', 1_073_741_824, 1, 84_000_000_000),
  resultMaxBytes: integer(
    'Bytes that a result may have that goes to the store; it is held in the memory of its worker.',
    67_108_864,
    1,
    268_435_456,
  ),
  inputMaxBytes: integer(
    'Bytes that an input may have that is too large for its row (limits.messageBytes) and goes to the store; producers, workers and dead-letter-handlers hold it in memory.',
    8_388_608,
    0,
    67_108_864,
  ),
  keepMs: integer('Milliseconds that files are kept after their task succeeded.', 7 * DAY_MS, 0, 3_650 * DAY_MS),
  keepAfterLinkMs: integer(
    'Milliseconds that a file is kept at least after the last link to it expired.',
    DAY_MS,
    0,
    3_650 * DAY_MS,
  ),
  linkSecret: secretText(
    'Signs the links to files; another secret makes every link useless. Empty: on loopback one that lasts as long as the process.',
    /^([\x21-\x7e]{32,512})?$/,
    '32 to 512 printable ASCII characters, or empty',
  ),
  linkBaseUrl: text(
    'First part of links, where the producers are reached from outside; empty: the host that was asked for the link.',
    '',
    /^(https?:\/\/[^\s@?#]{1,500})?$/,
    'http://host or https://host, with a path where a proxy adds one, or empty',
  ),
  linkMs: integer('Milliseconds that a link is valid, where no duration is asked for.', DAY_MS, 1_000, 30 * DAY_MS),
  sweepIntervalMs: integer('Milliseconds between two looks for files to delete.', 60_000, 50, 3_600_000),
  graceMs: integer(
    'Milliseconds that what nothing refers to is left alone, for an upload may be under way.',
    3_600_000,
    500,
    30 * DAY_MS,
  ),
} as const;
