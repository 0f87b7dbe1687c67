-- Figures that concern all of an installation are shown by one process of a service (docs/decisions/0032).
-- breaking: no
--
-- An older producer or dead-letter-handler shows them too, as it did before.

create table fleet_figures (
  name        text        primary key,
  shown_by    uuid        not null,
  shown_until timestamptz not null,
  -- Of flows: ends up to here are counted.
  counted_to  timestamptz
) with (fillfactor = 50);

-- Replays that have not ended, to count them by state.
create index replays_open on replays (state) where finished_at is null;
