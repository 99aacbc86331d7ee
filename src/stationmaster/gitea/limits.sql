-- Limits: what was begun and used, and which queued tasks are kept back ---------------------------------------------

-- name: nth_of_author :one
SELECT opened_at FROM gitea_usage WHERE instance_id = :instance_id AND author_id = :author_id AND opened_at > :after
ORDER BY opened_at DESC LIMIT 1 OFFSET :skip;

-- name: nth_of_repository :one
SELECT opened_at FROM gitea_usage WHERE repository_id = :repository_id AND opened_at > :after
ORDER BY opened_at DESC LIMIT 1 OFFSET :skip;

-- name: nth_of_all :one
SELECT opened_at FROM gitea_usage WHERE opened_at > :after ORDER BY opened_at DESC LIMIT 1 OFFSET :skip;

-- name: used_by_task :one
SELECT count(*) AS turns, coalesce(sum(tokens), 0) AS tokens, coalesce(sum(seen_at - opened_at), 0) AS micros
FROM gitea_usage WHERE task_id = :task_id;

-- name: used_in_repository :one
SELECT count(*) AS turns, coalesce(sum(tokens), 0) AS tokens, coalesce(sum(seen_at - opened_at), 0) AS micros
FROM gitea_usage WHERE repository_id = :repository_id AND opened_at >= :since;

-- name: used_since :one
SELECT count(*) AS turns, coalesce(sum(tokens), 0) AS tokens, coalesce(sum(seen_at - opened_at), 0) AS micros
FROM gitea_usage WHERE opened_at >= :since;

-- name: used_by_repositories :many
SELECT u.repository_id, r.repo_key, count(*) AS turns, sum(u.tokens) AS tokens, sum(u.seen_at - u.opened_at) AS micros
FROM gitea_usage u JOIN gitea_repository r ON r.id = u.repository_id
WHERE u.opened_at >= :since GROUP BY u.repository_id, r.repo_key
ORDER BY sum(u.tokens) DESC, count(*) DESC, r.repo_key LIMIT :limit;

-- name: used_by_authors :many
SELECT u.instance_id, u.author_id, max(u.author) AS author, count(*) AS turns, sum(u.tokens) AS tokens,
  sum(u.seen_at - u.opened_at) AS micros
FROM gitea_usage u WHERE u.opened_at >= :since GROUP BY u.instance_id, u.author_id
ORDER BY count(*) DESC, sum(u.tokens) DESC, u.instance_id, u.author_id LIMIT :limit;

-- name: open_usage :run
INSERT INTO gitea_usage (run_id, task_id, repository_id, instance_id, author_id, author, thread_id, opened_at, seen_at,
  total, tokens)
VALUES (:run_id, :task_id, :repository_id, :instance_id, :author_id, :author, NULL, :at, :at, 0, 0);

-- name: usage :one
SELECT run_id, task_id, repository_id, thread_id, opened_at, seen_at, total, tokens FROM gitea_usage
WHERE run_id = :run_id;

-- name: last_total :one
-- What the thread had come to when another run last told of it.
SELECT total FROM gitea_usage WHERE thread_id = :thread_id AND run_id <> :run_id ORDER BY opened_at DESC LIMIT 1;

-- name: count_usage :run
UPDATE gitea_usage SET thread_id = :thread_id, seen_at = :at, total = :total, tokens = :tokens WHERE run_id = :run_id;

-- name: hold :one
SELECT task_id, reason, since, until_at, released_by, released_at FROM gitea_hold WHERE task_id = :task_id;

-- name: holds :many
SELECT h.task_id, h.reason, h.since, h.until_at, t.resource_key, t.author, t.created_at
FROM gitea_hold h JOIN gitea_task t ON t.id = h.task_id
WHERE t.state = 'queued' AND h.released_at IS NULL
  AND (h.since > :since OR (h.since = :since AND h.task_id > :task_id))
ORDER BY h.since, h.task_id LIMIT :limit;

-- name: add_hold :run
INSERT INTO gitea_hold (task_id, reason, since, until_at) VALUES (:task_id, :reason, :at, :until_at)
ON CONFLICT (task_id) DO UPDATE SET reason = excluded.reason, until_at = excluded.until_at;

-- name: release_hold :run
UPDATE gitea_hold SET released_by = :by, released_at = :at WHERE task_id = :task_id AND released_at IS NULL;

-- name: drop_hold :run
DELETE FROM gitea_hold WHERE task_id = :task_id;

-- name: told_of_hold :one
-- Whether a conversation was told lately that a limit keeps it back.
SELECT c.id FROM gitea_task t JOIN gitea_comment c ON c.task_id = t.id
WHERE t.session_id = :session_id AND c.kind = 'status' AND c.id = t.id || ':status:held' AND c.created_at > :after
LIMIT 1;
