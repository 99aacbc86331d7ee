CREATE TABLE letter (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  term INT64,
  native_id INT64,
  error_code TEXT
);
