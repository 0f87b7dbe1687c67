-- Inputs too large for a row: the bytes are in the store of files, and the row keeps an outline of them.
-- breaking: yes
--
-- A worker that does not know stored inputs would hand the outline to its handler, so older ones must not start any more.

-- The file with the whole input. `input` is its outline then: what is small in it, so that searches, limits and turns find their keys.
alter table tasks add column input_file uuid;
-- The input before a replay mended it, likewise.
alter table mended_inputs add column input_file uuid;
create index mended_inputs_file on mended_inputs (input_file) where input_file is not null;

alter table files drop constraint files_kind_check;
-- An input belongs to no attempt: its number is 0.
alter table files add constraint files_kind_check check (kind in ('saved', 'result', 'input'));
