-- Inputs as filters of tasks look at them: bytes that are no text, and JSON that jsonb cannot hold, are null and fit nothing.
-- breaking: no

create function input_text(input bytea) returns text language plpgsql immutable strict as $$
begin
  return convert_from(input, 'UTF8');
exception when data_exception then
  return null;
end
$$;

create function input_json(input bytea) returns jsonb language plpgsql immutable strict as $$
begin
  return convert_from(input, 'UTF8')::jsonb;
exception when data_exception or program_limit_exceeded then
  return null;
end
$$;
