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
