-- Keys that people and programs use over HTTP. Only the hash is kept; the key itself is shown once.
CREATE TABLE operator_key (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  name TEXT NOT NULL CHECK (name <> ''),
  scope TEXT NOT NULL CHECK (scope IN ('read', 'operate')),
  key_hash TEXT NOT NULL,
  created_at INT64 NOT NULL,
  revoked_at INT64
);
CREATE UNIQUE INDEX operator_key_hash ON operator_key (key_hash);
CREATE UNIQUE INDEX operator_key_name ON operator_key (name) WHERE state = 'active';

-- Who is logged in at the console; hot. The cookie's value is never kept, only its hash.
CREATE TABLE console_session (
  id TEXT PRIMARY KEY,
  key_id TEXT NOT NULL REFERENCES operator_key (id),
  opened_at INT64 NOT NULL,
  seen_at INT64 NOT NULL
);
CREATE INDEX console_session_seen ON console_session (seen_at);
