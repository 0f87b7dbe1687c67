-- When each attempt was invited, for the history: a wait that is over is told by the moment at which it ended.
-- breaking: no

alter table attempts add column invited_at timestamptz;
