-- Orders by comment, stops that stand, comments said into a running turn, and when the forge heard an instruction.
ALTER TABLE gitea_instruction ADD COLUMN asked_at INT64;
ALTER TABLE gitea_follow_up ADD COLUMN asked_at INT64;

-- What a comment of one word asks of the product itself: stop, retry, status, help. Its content key is its own, for an
-- issue may get one that never had a task.
CREATE TABLE gitea_order (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  instance_id TEXT NOT NULL,
  origin TEXT NOT NULL CHECK (origin IN ('comment', 'issue', 'pull', 'review', 'code_comment')),
  native_id INT64 NOT NULL,
  version INT64 NOT NULL,
  word TEXT NOT NULL CHECK (word IN ('stop', 'retry', 'status', 'help')),
  delivery_id TEXT NOT NULL,
  repository_id TEXT NOT NULL REFERENCES gitea_repository (id),
  resource_key TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('issue', 'pull_request')),
  number INT64 NOT NULL CHECK (number > 0),
  author TEXT NOT NULL,
  author_id INT64 NOT NULL,
  sender_may TEXT,
  asked_at INT64 NOT NULL,
  error_code TEXT,
  created_at INT64 NOT NULL,
  updated_at INT64 NOT NULL,
  UNIQUE (instance_id, origin, native_id, version)
);
CREATE INDEX gitea_order_open ON gitea_order (created_at, id) WHERE state IN ('asked', 'standing');

-- What the product says about an order: an outbox of its own, for these comments belong to no task.
CREATE TABLE gitea_note (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  order_id TEXT NOT NULL REFERENCES gitea_order (id),
  repository_id TEXT NOT NULL REFERENCES gitea_repository (id),
  resource_key TEXT NOT NULL,
  number INT64 NOT NULL,
  body TEXT NOT NULL,
  native_id INT64,
  error_code TEXT,
  created_at INT64 NOT NULL,
  updated_at INT64 NOT NULL
);
CREATE INDEX gitea_note_open ON gitea_note (created_at) WHERE state IN ('pending', 'sent');

-- Tasks that are to stop, and why; honoured as soon as their state allows it. Kept: it is why they ended.
CREATE TABLE gitea_stop (
  task_id TEXT PRIMARY KEY REFERENCES gitea_task (id),
  code TEXT NOT NULL,
  order_id TEXT REFERENCES gitea_order (id),
  at INT64 NOT NULL
);
CREATE INDEX gitea_stop_order ON gitea_stop (order_id, task_id);

-- Comments that came while a turn of their conversation ran and are to be said into it (gitea.steering).
CREATE TABLE gitea_steer (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  task_id TEXT NOT NULL REFERENCES gitea_task (id),
  task_after TEXT REFERENCES gitea_task (id),
  created_at INT64 NOT NULL,
  updated_at INT64 NOT NULL
);
CREATE INDEX gitea_steer_open ON gitea_steer (task_id, created_at, id) WHERE state IN ('waiting', 'sent');

-- What is to be said: the whole comment, kept until it is settled.
CREATE TABLE gitea_steer_said (
  steer_id TEXT PRIMARY KEY REFERENCES gitea_steer (id),
  said TEXT NOT NULL
);

-- What a start receipt says now, where receipts are kept up to date (gitea.live_receipt).
CREATE TABLE gitea_live_receipt (
  task_id TEXT PRIMARY KEY REFERENCES gitea_task (id),
  shown TEXT,
  closed INT64 NOT NULL CHECK (closed IN (0, 1))
);
CREATE INDEX gitea_live_receipt_open ON gitea_live_receipt (task_id) WHERE closed = 0;

INSERT INTO edge (machine, from_state, verb, to_state) VALUES
  ('gitea_order', '', 'ask', 'asked'),
  ('gitea_order', 'asked', 'refuse', 'refused'),
  ('gitea_order', 'asked', 'carry_out', 'done'),
  ('gitea_order', 'asked', 'stand', 'standing'),
  ('gitea_order', 'standing', 'settle', 'done'),
  ('gitea_note', '', 'intend', 'pending'),
  ('gitea_note', 'pending', 'deliver', 'sent'),
  ('gitea_note', 'pending', 'confirm', 'confirmed'),
  ('gitea_note', 'sent', 'confirm', 'confirmed'),
  ('gitea_note', 'pending', 'fail', 'failed'),
  ('gitea_note', 'sent', 'fail', 'failed'),
  ('gitea_steer', '', 'hand_in', 'waiting'),
  ('gitea_steer', 'waiting', 'send', 'sent'),
  ('gitea_steer', 'sent', 'return', 'waiting'),
  ('gitea_steer', 'sent', 'take', 'taken'),
  ('gitea_steer', 'waiting', 'queue', 'queued'),
  ('gitea_steer', 'sent', 'queue', 'queued');
