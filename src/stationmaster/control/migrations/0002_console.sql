-- Who is logged in at the console; hot. The cookie's value is never kept, only its hash.
CREATE TABLE console_session (
  id TEXT PRIMARY KEY,
  key_id TEXT NOT NULL REFERENCES operator_key (id),
  opened_at INT64 NOT NULL,
  seen_at INT64 NOT NULL
);
CREATE INDEX console_session_seen ON console_session (seen_at);
