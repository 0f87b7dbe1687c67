/** The statements around the bytes of a file whose row was begun. */
import { sql, statement } from '../postgres/statement.ts';

/** Writes down that all bytes of a file are stored. Nothing where it is being deleted already. */
export const finishFile = statement<[id: string, bytes: string, sha256: Buffer]>()({
  name: 'finish_file',
  text: sql`
    update files
       set bytes = $2::int8, sha256 = $3::bytea, stored_at = clock_timestamp()
     where id = $1::uuid and stored_at is null and doomed_at is null
    returning id`,
  columns: { id: 'uuid' },
});

/** Forgets a file of which nothing was stored. */
export const forgetFile = statement<[id: string]>()({
  name: 'forget_file',
  text: sql`delete from files where id = $1::uuid and stored_at is null and doomed_at is null returning id`,
  columns: { id: 'uuid' },
});
