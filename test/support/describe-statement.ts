/** What Postgres says about a statement without running it. */
import pg from 'pg';
import type { TestDatabase } from './database.ts';

/** A column of a result. */
export interface DescribedColumn {
  readonly name: string;
  /** Postgres's name of the type, such as `int4` or `text[]`; `text` for an enum. */
  readonly type: string;
  /** False where it is a column declared `not null`, true where it may be null, `undefined` for an expression. */
  readonly isNullable: boolean | undefined;
}

/** A statement as Postgres understands it. */
export interface DescribedStatement {
  readonly params: readonly string[];
  readonly columns: readonly DescribedColumn[];
}

interface Field {
  readonly name: string;
  readonly tableID: number;
  readonly columnID: number;
  readonly dataTypeID: number;
}

/** The part of pg's connection that its own extensions (pg-cursor, pg-query-stream) use. */
interface WireConnection {
  parse(query: { readonly name: string; readonly text: string; readonly types: readonly number[] }): void;
  describe(what: { readonly type: 'S'; readonly name: string }): void;
  sync(): void;
}

/** Sends Parse and Describe. Source: postgresql.org/docs/current/protocol-flow.html, "Extended Query". */
class Describe {
  readonly #text: string;
  readonly #done: (failure: Error | undefined, fields: readonly Field[]) => void;
  #fields: readonly Field[] = [];

  constructor(text: string, done: (failure: Error | undefined, fields: readonly Field[]) => void) {
    this.#text = text;
    this.#done = done;
  }

  submit(connection: WireConnection): void {
    connection.parse({ name: 'described', text: this.#text, types: [] });
    connection.describe({ type: 'S', name: 'described' });
    connection.sync();
  }

  handleRowDescription(message: { readonly fields: readonly Field[] }): void {
    this.#fields = message.fields;
  }

  handleError(error: Error): void {
    this.#done(error, []);
  }

  handleReadyForQuery(): void {
    this.#done(undefined, this.#fields);
  }
}

/** Asks for the types of parameters and columns. Rejects with Postgres's error when the statement is wrong. */
export async function openDescriber({
  url,
}: TestDatabase): Promise<AsyncDisposable & { describe(text: string): Promise<DescribedStatement> }> {
  const client = new pg.Client({ connectionString: url, options: '-c search_path=warren' });
  await client.connect();
  return {
    describe: async (text) => {
      const fields = await new Promise<readonly Field[]>((resolve, reject) => {
        client.query(
          new Describe(text, (failure, found) => {
            if (failure === undefined) resolve(found);
            else reject(failure);
          }) as unknown as pg.Submittable,
        );
      });
      const params = await client.query<{ type: string }>(
        `select format_type(oid, null) as type
           from pg_prepared_statements, unnest(parameter_types) with ordinality p (oid, n)
          where name = 'described' order by n`,
      );
      await client.query('deallocate described');
      return { params: params.rows.map(({ type }) => shortName(type)), columns: await describeColumns(client, fields) };
    },
    [Symbol.asyncDispose]: async () => await client.end(),
  };
}

async function describeColumns(client: pg.Client, fields: readonly Field[]): Promise<readonly DescribedColumn[]> {
  const { rows } = await client.query<{ type: string; kind: string; is_nullable: boolean | null }>(
    `select format_type(t.oid, null) as type, t.typtype as kind,
            case when f.attrelid = 0 then null else not a.attnotnull end as is_nullable
       from unnest($1::oid[], $2::oid[], $3::int2[]) with ordinality f (type, attrelid, attnum, n)
       join pg_type t on t.oid = f.type
       left join pg_attribute a on a.attrelid = f.attrelid and a.attnum = f.attnum
      order by f.n`,
    [
      fields.map((field) => field.dataTypeID),
      fields.map((field) => field.tableID),
      fields.map((field) => field.columnID),
    ],
  );
  return rows.map(({ type, kind, is_nullable: isNullable }, index) => ({
    name: fields[index]?.name ?? '',
    type: kind === 'e' ? 'text' : shortName(type),
    isNullable: isNullable ?? undefined,
  }));
}

const SHORT_NAMES: ReadonlyMap<string, string> = new Map([
  ['smallint', 'int2'],
  ['integer', 'int4'],
  ['bigint', 'int8'],
  ['double precision', 'float8'],
  ['boolean', 'bool'],
  ['timestamp with time zone', 'timestamptz'],
]);

function shortName(type: string): string {
  const element = type.replace(/\[\]$/, '');
  return (SHORT_NAMES.get(element) ?? element) + type.slice(element.length);
}
