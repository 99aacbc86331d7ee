-- One row per execution by an agent. The id is made by us before the agent has one of its own.
CREATE TABLE run (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  agent TEXT NOT NULL CHECK (agent <> ''),
  subject TEXT NOT NULL CHECK (subject <> ''),
  worker_id TEXT NOT NULL,
  external_id TEXT,
  thread_id TEXT,
  error_code TEXT,
  started_at INT64 NOT NULL,
  ended_at INT64
);
CREATE INDEX run_subject ON run (subject, started_at);
CREATE INDEX run_open ON run (worker_id, started_at) WHERE state = 'started';

-- What an agent did, in the order of receipt; hot, prunable.
CREATE TABLE run_event (
  run_id TEXT NOT NULL,
  seq INT64 NOT NULL,
  at INT64 NOT NULL,
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (run_id, seq)
);
