-- One row per outside event that was taken. Prunable: what must be known for ever has its own table in a slice.
CREATE TABLE inbox (
  source TEXT NOT NULL,
  event_id TEXT NOT NULL,
  payload_hash TEXT NOT NULL,
  disposition TEXT NOT NULL CHECK (disposition <> ''),
  received_at INT64 NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  PRIMARY KEY (source, event_id)
);
CREATE INDEX inbox_received ON inbox (received_at);
