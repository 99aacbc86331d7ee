-- The kernel's own tables. History (command, journal, event, ref) is append-only and shares one number, `seq`.

-- The legal moves of every machine; filled at installation, changed by migrations only.
CREATE TABLE edge (
  machine TEXT NOT NULL,
  from_state TEXT NOT NULL,
  verb TEXT NOT NULL,
  to_state TEXT NOT NULL,
  PRIMARY KEY (machine, from_state, verb)
);

-- One row per write: who did what, and why. Sealed when its body is through.
CREATE TABLE command (
  seq INT64 PRIMARY KEY,
  name TEXT NOT NULL CHECK (name <> ''),
  actor TEXT NOT NULL CHECK (actor <> ''),
  cause TEXT NOT NULL CHECK (cause <> ''),
  dedupe TEXT,
  args_hash TEXT NOT NULL,
  at INT64 NOT NULL,
  sealed INT64 NOT NULL CHECK (sealed IN (0, 1)),
  -- PostgreSQL only: the transaction that wrote the row, and the newest history number before that transaction began.
  tx INT64,
  base INT64
);

-- Every move of every guarded row; written by triggers alone.
CREATE TABLE journal (
  seq INT64 PRIMARY KEY,
  machine TEXT NOT NULL,
  entity TEXT NOT NULL,
  rev INT64 NOT NULL,
  from_state TEXT NOT NULL,
  verb TEXT NOT NULL,
  to_state TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  UNIQUE (machine, entity, rev)
);
CREATE INDEX journal_command ON journal (command);

-- Intents, their results, refusals and observations; `outcome` is a result's outcome or a refusal's code.
CREATE TABLE event (
  seq INT64 PRIMARY KEY,
  action TEXT NOT NULL CHECK (action <> ''),
  kind TEXT NOT NULL CHECK (kind IN ('intent', 'result', 'observation', 'refusal')),
  intent_seq INT64 REFERENCES event (seq),
  outcome TEXT,
  data TEXT NOT NULL,
  at INT64 NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  CHECK ((kind = 'result') = (intent_seq IS NOT NULL)),
  CHECK ((kind IN ('result', 'refusal')) = (outcome IS NOT NULL))
);
CREATE INDEX event_command ON event (command);
CREATE INDEX event_action ON event (action, seq);
CREATE INDEX event_intent ON event (intent_seq) WHERE intent_seq IS NOT NULL;
-- An unknown outcome may be followed by the known one; a known one is final.
CREATE UNIQUE INDEX event_final ON event (intent_seq) WHERE intent_seq IS NOT NULL AND outcome <> 'unknown';

-- Correlation ids of a command (valid for all its rows) or of one event.
CREATE TABLE ref (
  kind TEXT NOT NULL CHECK (kind <> ''),
  value TEXT NOT NULL,
  seq INT64 NOT NULL,
  PRIMARY KEY (kind, value, seq)
);
CREATE INDEX ref_seq ON ref (seq);

-- Intents whose outcome is not yet known; what recovery reads first.
CREATE TABLE open_intent (
  seq INT64 PRIMARY KEY REFERENCES event (seq),
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  at INT64 NOT NULL
);
CREATE INDEX open_intent_subject ON open_intent (subject, seq);
CREATE INDEX open_intent_action ON open_intent (action, seq);

-- The stored, replayable answer of a command that carried a dedupe key.
CREATE TABLE receipt (
  name TEXT NOT NULL,
  dedupe TEXT NOT NULL,
  args_hash TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('pending', 'done', 'refused')),
  result TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  finished INT64 REFERENCES command (seq),
  PRIMARY KEY (name, dedupe)
);
CREATE INDEX receipt_pending ON receipt (command) WHERE status = 'pending';

-- The newest incarnation of every worker; hot.
CREATE TABLE worker (
  worker_id TEXT PRIMARY KEY,
  incarnation TEXT NOT NULL,
  started_at INT64 NOT NULL,
  seen_at INT64 NOT NULL
);

-- Who holds what, under which term. The row stays after a release, so that terms only grow.
CREATE TABLE lease (
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  term INT64 NOT NULL CHECK (term > 0),
  lease_id TEXT,
  owner TEXT,
  incarnation TEXT,
  subject TEXT,
  expires_at INT64,
  PRIMARY KEY (kind, key),
  CHECK (
    (lease_id IS NULL) = (owner IS NULL) AND (lease_id IS NULL) = (incarnation IS NULL)
    AND (lease_id IS NULL) = (subject IS NULL) AND (lease_id IS NULL) = (expires_at IS NULL)
  )
);
CREATE INDEX lease_held ON lease (kind, expires_at) WHERE lease_id IS NOT NULL;
CREATE INDEX lease_owner ON lease (owner, kind) WHERE lease_id IS NOT NULL;

-- The schema version of every slice, and the print of the guards that this database was given.
CREATE TABLE schema_version (
  slice TEXT PRIMARY KEY,
  version INT64 NOT NULL,
  guards TEXT NOT NULL
);
