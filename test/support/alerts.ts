/** Receivers of alerts as they stand outside, and rows that alerts are found from. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';
import type { SMTPServerOptions } from 'smtp-server';
import type { Alert } from '../../shared/dead-letters/alert.ts';
import type { Database } from '../../shared/postgres/pool.ts';
import { newId } from '../../shared/tasks/ids.ts';

/** A request as it came. */
export interface SeenRequest {
  readonly method: string | undefined;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** An HTTP receiver. */
export interface Receiver extends AsyncDisposable {
  readonly url: string;
  readonly seen: SeenRequest[];
  /** Answers what comes from now on. */
  answer: (response: ServerResponse, request: SeenRequest) => void;
}

/** Opens an HTTP receiver that answers 200. */
export async function openReceiver(): Promise<Receiver> {
  const seen: SeenRequest[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const { method, url: path = '', headers } = request;
      const one = { method, path, headers, body: Buffer.concat(chunks).toString() };
      seen.push(one);
      receiver.answer(response, one);
    })();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const receiver: Receiver = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen,
    answer: (response) => response.end('{"errcode":0,"errmsg":"ok"}'),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return receiver;
}

/** A mail as it came. */
export interface SeenMail {
  readonly from: string;
  readonly to: readonly string[];
  readonly user: string | undefined;
  /** Headers and body, CRLF as LF. */
  readonly source: string;
}

/** An SMTP server. */
export interface MailServer extends AsyncDisposable {
  readonly port: number;
  readonly seen: SeenMail[];
  /** Set to refuse mails with this code from now on. */
  refuseWith: number | undefined;
}

/** Opens an SMTP server that knows one user, `ops` with `correct-horse-battery`. */
export async function openMailServer(options: SMTPServerOptions = {}): Promise<MailServer> {
  const seen: SeenMail[] = [];
  const server = new SMTPServer({
    logger: false,
    authOptional: true,
    allowInsecureAuth: true,
    disabledCommands: ['STARTTLS'],
    onAuth({ username, password }, _session, done) {
      if (username === 'ops' && password === 'correct-horse-battery') done(null, { user: username });
      else done(Object.assign(new Error(`wrong password ${password ?? ''}`), { responseCode: 535 }));
    },
    onData(stream, { envelope, user }, done) {
      void (async () => {
        const chunks: Buffer[] = [];
        for await (const chunk of stream) chunks.push(chunk as Buffer);
        if (mail.refuseWith !== undefined) {
          done(Object.assign(new Error('not now, or never'), { responseCode: mail.refuseWith }));
          return;
        }
        seen.push({
          from: envelope.mailFrom === false ? '' : envelope.mailFrom.address,
          to: envelope.rcptTo.map(({ address }) => address),
          user: user === undefined ? undefined : String(user),
          source: Buffer.concat(chunks).toString().replaceAll('\r\n', '\n'),
        });
        done();
      })();
    },
    ...options,
  });
  server.listen(0, '127.0.0.1');
  await once(server.server, 'listening');
  const mail: MailServer = {
    port: (server.server.address() as AddressInfo).port,
    seen,
    refuseWith: undefined,
    async [Symbol.asyncDispose]() {
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
  return mail;
}

/** An alert of a new group, differing as said. */
export function anAlert(more: Partial<Alert> = {}): Alert {
  return {
    id: newId(),
    kind: 'new_group',
    installation: 'shop',
    foundAt: '2026-05-01T10:00:00.000Z',
    group: {
      id: 'c0ffee00-1111-5222-8333-444455556666',
      kind: 'task',
      type: 'report.csv',
      rule: null,
      errorType: 'DiskFull',
      errorMessage: 'no space on <path>',
      state: 'open',
      letters: 140,
      openLetters: 138,
      firstAt: '2026-05-01T09:00:00.000Z',
      lastAt: '2026-05-01T09:59:00.000Z',
      queues: ['default'],
      codeVersions: ['1.4.0'],
    },
    growth: null,
    oldest: null,
    openLetters: null,
    ...more,
  };
}

/** What a test may set of a failure group. Times are SQL expressions. */
export interface NewGroup {
  readonly id?: string;
  readonly type?: string;
  readonly kind?: 'task' | 'refused' | 'foreign';
  readonly state?: 'open' | 'acknowledged' | 'resolved' | 'ignored';
  readonly letters?: number;
  readonly openLetters?: number;
  readonly firstAt?: string;
  readonly lastAt?: string;
  /** Letters by hours back from now. */
  readonly hours?: Readonly<Record<number, number>>;
}

/** Adds a failure group as the recorder would. Returns its id. */
export async function addGroup(db: Database, group: NewGroup = {}): Promise<string> {
  const { type = 'test.noop', kind = 'task', state = 'open', letters = 1, openLetters = letters, hours = {} } = group;
  const id = group.id ?? randomUUID();
  const firstAt = group.firstAt ?? 'clock_timestamp()';
  await db.query({
    text: `insert into failure_groups (id, kind, type, error_type, error_message, state, letters, open_letters, first_at, last_at, queues)
           values ($1, $2, $3, 'DiskFull', 'no space', $4, $5, $6, ${firstAt}, ${group.lastAt ?? firstAt}, '{default}')`,
    values: [id, kind, type, state, letters, openLetters],
  });
  for (const [back, count] of Object.entries(hours)) {
    await db.query({
      text: `insert into failure_group_hours (group_id, hour, letters)
             values ($1, floor(extract(epoch from clock_timestamp()) / 3600)::int4 - $2::int4, $3)`,
      values: [id, Number(back), count],
    });
  }
  return id;
}

/** Adds an open letter, of a group or of none. `diedAt` is an SQL expression. Returns its id. */
export async function addLetter(
  db: Database,
  { groupId = null, type = 'test.noop', diedAt = 'clock_timestamp()', kind = 'refused' }: NewLetter = {},
): Promise<string> {
  const id = newId<string>();
  await db.query({
    text: `insert into dead_letters (id, kind, reason, type, group_id, died_at, recorded_at, body)
           values ($1, $2, 'rejected', $3, $4, ${diedAt}, clock_timestamp(), '')`,
    values: [id, kind, type, groupId],
  });
  return id;
}

/** What a test may set of a letter. */
export interface NewLetter {
  readonly groupId?: string | null;
  readonly type?: string;
  readonly diedAt?: string;
  readonly kind?: 'refused' | 'foreign';
}
