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
