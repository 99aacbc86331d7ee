-- A repository of the forge: its number never changes, its name may. One lease, one home worker each.
CREATE TABLE gitea_repository (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  instance_id TEXT NOT NULL,
  native_id INT64 NOT NULL,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  repo_key TEXT NOT NULL,
  clone_url TEXT NOT NULL,
  default_branch TEXT NOT NULL,
  home_worker TEXT,
  registered_at INT64 NOT NULL,
  updated_at INT64 NOT NULL,
  UNIQUE (instance_id, native_id)
);
CREATE INDEX gitea_repository_key ON gitea_repository (repo_key);

-- Names a repository had before; never the key of a new row.
CREATE TABLE gitea_repository_alias (
  repo_key TEXT NOT NULL,
  repository_id TEXT NOT NULL REFERENCES gitea_repository (id),
  until_at INT64 NOT NULL,
  PRIMARY KEY (repo_key, repository_id)
);

-- When a repository was last fetched; hot.
CREATE TABLE gitea_fetch (
  repository_id TEXT PRIMARY KEY,
  last_fetch_at INT64 NOT NULL
);

-- Repositories in which something may be claimable, and from when on; an index that claims and recovery keep true.
CREATE TABLE gitea_ready (
  repository_id TEXT PRIMARY KEY REFERENCES gitea_repository (id),
  ready_at INT64 NOT NULL
);
CREATE INDEX gitea_ready_at ON gitea_ready (ready_at, repository_id);

-- The conversation of one issue or pull request: at most one thread at a time.
CREATE TABLE gitea_session (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  repository_id TEXT NOT NULL REFERENCES gitea_repository (id),
  kind TEXT NOT NULL CHECK (kind IN ('issue', 'pull_request')),
  number INT64 NOT NULL CHECK (number > 0),
  thread_id TEXT,
  tool_set TEXT,
  created_at INT64 NOT NULL,
  updated_at INT64 NOT NULL,
  UNIQUE (repository_id, kind, number)
);

-- The task branches of a session; one is current.
CREATE TABLE gitea_branch (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  session_id TEXT NOT NULL REFERENCES gitea_session (id),
  name TEXT NOT NULL,
  base_sha TEXT NOT NULL,
  published_sha TEXT,
  pull_number INT64,
  created_at INT64 NOT NULL,
  updated_at INT64 NOT NULL,
  UNIQUE (session_id, name)
);
CREATE UNIQUE INDEX gitea_branch_current ON gitea_branch (session_id) WHERE state = 'current';

CREATE TABLE gitea_task (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  delivery_key TEXT NOT NULL UNIQUE,
  delivery_id TEXT NOT NULL,
  repository_id TEXT NOT NULL REFERENCES gitea_repository (id),
  session_id TEXT NOT NULL REFERENCES gitea_session (id),
  resource_key TEXT NOT NULL,
  comment_id INT64 NOT NULL,
  author TEXT NOT NULL,
  author_id INT64 NOT NULL,
  sender_may TEXT,
  base_ref TEXT,
  head_ref TEXT,
  attempt INT64 NOT NULL,
  reply_attempt INT64 NOT NULL,
  unblock_attempt INT64 NOT NULL,
  next_retry_at INT64,
  retry_purpose TEXT CHECK (retry_purpose IN ('execution', 'reply', 'verification')),
  error_code TEXT,
  reply_failure TEXT,
  created_at INT64 NOT NULL,
  updated_at INT64 NOT NULL
);
CREATE INDEX gitea_task_waiting ON gitea_task (repository_id, created_at, id) WHERE state IN ('queued', 'retry_wait');
CREATE INDEX gitea_task_open ON gitea_task (session_id, created_at, id)
  WHERE state IN (
    'received', 'queued', 'preparing', 'running', 'waiting_user', 'verifying_reply', 'retry_wait', 'blocked_workspace',
    'aborting'
  );
CREATE INDEX gitea_task_session ON gitea_task (session_id, created_at, id);
CREATE INDEX gitea_task_created ON gitea_task (created_at, id);
CREATE INDEX gitea_task_state ON gitea_task (state, created_at, id);
CREATE INDEX gitea_task_active ON gitea_task (repository_id)
  WHERE state IN ('preparing', 'running', 'verifying_reply', 'aborting');

-- Who was told on which day that they may not ask; prunable.
CREATE TABLE gitea_refused_author (
  instance_id TEXT NOT NULL,
  author_id INT64 NOT NULL,
  day INT64 NOT NULL,
  PRIMARY KEY (instance_id, author_id, day)
);

-- What a task was asked, and when it was written by the forge's clock; prunable.
CREATE TABLE gitea_instruction (
  task_id TEXT PRIMARY KEY REFERENCES gitea_task (id),
  body TEXT NOT NULL,
  asked_at INT64
);

-- Comments that continued a waiting task instead of making one.
CREATE TABLE gitea_follow_up (
  task_id TEXT NOT NULL REFERENCES gitea_task (id),
  number INT64 NOT NULL,
  delivery_key TEXT NOT NULL UNIQUE,
  comment_id INT64 NOT NULL,
  author TEXT NOT NULL,
  author_id INT64 NOT NULL,
  sender_may TEXT,
  body TEXT NOT NULL,
  at INT64 NOT NULL,
  asked_at INT64,
  PRIMARY KEY (task_id, number)
);

-- Content keys: what was asked once is never asked twice, whatever delivery brings it. Kept for ever.
CREATE TABLE gitea_trigger (
  instance_id TEXT NOT NULL,
  origin TEXT NOT NULL CHECK (origin IN ('comment', 'issue', 'pull', 'review', 'code_comment')),
  native_id INT64 NOT NULL,
  version INT64 NOT NULL,
  task_id TEXT NOT NULL REFERENCES gitea_task (id),
  follow_up INT64,
  PRIMARY KEY (instance_id, origin, native_id, version)
);

-- What a delivery was answered; prunable after its time.
CREATE TABLE gitea_delivery (
  delivery_key TEXT PRIMARY KEY,
  delivery_id TEXT NOT NULL,
  event_type TEXT NOT NULL,
  received_at INT64 NOT NULL,
  normalized INT64 NOT NULL CHECK (normalized IN (0, 1)),
  status TEXT NOT NULL CHECK (status IN ('accepted', 'ignored', 'duplicate', 'rejected')),
  reason_code TEXT,
  http_status INT64 NOT NULL,
  response_body TEXT NOT NULL,
  payload_hash TEXT NOT NULL,
  task_id TEXT REFERENCES gitea_task (id),
  expires_at INT64 NOT NULL
);
CREATE INDEX gitea_delivery_expiry ON gitea_delivery (expires_at);

-- Which task a run belongs to.
CREATE TABLE gitea_turn (
  run_id TEXT PRIMARY KEY,
  task_id TEXT NOT NULL REFERENCES gitea_task (id),
  kind TEXT NOT NULL CHECK (kind IN ('normal', 'reply_retry')),
  head_before TEXT,
  opened_at INT64 NOT NULL
);
CREATE INDEX gitea_turn_task ON gitea_turn (task_id, opened_at, run_id);

-- The agent's last words in a run; what a fallback would post. Prunable.
CREATE TABLE gitea_final_text (
  run_id TEXT PRIMARY KEY REFERENCES gitea_turn (run_id),
  body TEXT NOT NULL
);

-- Every comment the product writes: a row first, then an attempt, then proof.
CREATE TABLE gitea_comment (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  task_id TEXT NOT NULL REFERENCES gitea_task (id),
  run_id TEXT,
  kind TEXT NOT NULL CHECK (kind IN ('status', 'mcp_final', 'rest_fallback', 'question')),
  repository_id TEXT NOT NULL REFERENCES gitea_repository (id),
  resource_key TEXT NOT NULL,
  number INT64 NOT NULL,
  body_hash TEXT NOT NULL,
  term INT64,
  native_id INT64,
  error_code TEXT,
  created_at INT64 NOT NULL,
  updated_at INT64 NOT NULL
);
CREATE INDEX gitea_comment_task ON gitea_comment (task_id, created_at);
CREATE INDEX gitea_comment_open ON gitea_comment (created_at) WHERE state IN ('pending', 'sent');

-- What is to be posted; prunable once its comment is confirmed.
CREATE TABLE gitea_comment_body (
  comment_key TEXT PRIMARY KEY REFERENCES gitea_comment (id),
  body TEXT NOT NULL
);

-- Whether new work is taken up at all: one row, made at the first pause.
CREATE TABLE gitea_control (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  reason TEXT,
  updated_by TEXT NOT NULL,
  updated_at INT64 NOT NULL
);

-- A wish to read one issue or pull request at the forge, whose event said too little: a review, a remark on a line of
-- code. Done ones are prunable.
CREATE TABLE gitea_look (
  id TEXT PRIMARY KEY,
  instance_id TEXT NOT NULL,
  native_id INT64 NOT NULL,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('issue', 'pull_request')),
  number INT64 NOT NULL CHECK (number > 0),
  reason TEXT NOT NULL,
  delivery_id TEXT,
  asked_at INT64 NOT NULL,
  due_at INT64 NOT NULL,
  attempts INT64 NOT NULL,
  done_at INT64,
  error_code TEXT
);
CREATE INDEX gitea_look_open ON gitea_look (instance_id, due_at, id) WHERE done_at IS NULL;
CREATE INDEX gitea_look_done ON gitea_look (done_at) WHERE done_at IS NOT NULL;

-- A repository that the bot can see, whether anything was ever asked there or not, and how its last reading went; hot.
CREATE TABLE gitea_watch (
  instance_id TEXT NOT NULL,
  native_id INT64 NOT NULL,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  began_at INT64 NOT NULL,
  looked_at INT64,
  error_code TEXT,
  PRIMARY KEY (instance_id, native_id)
);

-- How far a repository was read, in the forge's own time: every change up to `read_to`, and, which is earlier while a
-- long reading is under way, everything that was written up to `new_from`. Hot.
CREATE TABLE gitea_cursor (
  instance_id TEXT NOT NULL,
  native_id INT64 NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('comments', 'issues')),
  read_to INT64 NOT NULL,
  new_from INT64 NOT NULL,
  moved_at INT64 NOT NULL,
  PRIMARY KEY (instance_id, native_id, kind)
);

-- When a forge last said which repositories the bot sees, by its own clock, when it was last read through, and the
-- last gap that was closed; hot.
CREATE TABLE gitea_listing (
  instance_id TEXT PRIMARY KEY,
  forge_at INT64,
  round_at INT64,
  found INT64 NOT NULL,
  taken INT64 NOT NULL,
  failed INT64 NOT NULL,
  error_code TEXT,
  gap_repo TEXT,
  gap_since INT64,
  gap_until INT64,
  gap_taken INT64
);

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

-- How far in the history each kind of payload was let go.
CREATE TABLE gitea_retention (
  name TEXT PRIMARY KEY,
  seq INT64 NOT NULL
);

-- What each run used, as its agent told: counted once, however often the agent repeats its totals; hot.
CREATE TABLE gitea_usage (
  run_id TEXT PRIMARY KEY,
  task_id TEXT NOT NULL,
  repository_id TEXT NOT NULL,
  instance_id TEXT NOT NULL,
  author_id INT64 NOT NULL,
  author TEXT NOT NULL,
  thread_id TEXT,
  opened_at INT64 NOT NULL,
  seen_at INT64 NOT NULL,
  total INT64 NOT NULL,
  tokens INT64 NOT NULL
);
CREATE INDEX gitea_usage_at ON gitea_usage (opened_at);
CREATE INDEX gitea_usage_repository ON gitea_usage (repository_id, opened_at);
CREATE INDEX gitea_usage_author ON gitea_usage (instance_id, author_id, opened_at);
CREATE INDEX gitea_usage_task ON gitea_usage (task_id);
CREATE INDEX gitea_usage_thread ON gitea_usage (thread_id, opened_at) WHERE thread_id IS NOT NULL;

-- Queued tasks that a limit keeps back, and until when; without a time until an operator lets them go.
CREATE TABLE gitea_hold (
  task_id TEXT PRIMARY KEY REFERENCES gitea_task (id),
  reason TEXT NOT NULL,
  since INT64 NOT NULL,
  until_at INT64,
  released_by TEXT,
  released_at INT64
);
CREATE INDEX gitea_hold_since ON gitea_hold (since, task_id);
