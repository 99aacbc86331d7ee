-- Reads for people and programs; nothing here writes, and every list is short or paged.

-- name: pause :one
SELECT state, rev, reason, updated_by, updated_at FROM gitea_control ORDER BY id LIMIT 1;

-- name: states :many
SELECT state, count(*) AS tasks FROM gitea_task GROUP BY state ORDER BY state;

-- name: reading :many
-- How the forge is read for what no delivery brought, and the last gap that was closed.
SELECT l.instance_id, l.round_at, l.failed, l.error_code, l.gap_repo, l.gap_since, l.gap_until, l.gap_taken,
  (SELECT count(*) FROM gitea_watch w WHERE w.instance_id = l.instance_id) AS watched,
  (SELECT count(*) FROM gitea_watch w WHERE w.instance_id = l.instance_id AND w.error_code IS NOT NULL) AS unread,
  (SELECT count(*) FROM gitea_look k WHERE k.instance_id = l.instance_id AND k.done_at IS NULL) AS looks
FROM gitea_listing l ORDER BY l.instance_id LIMIT 50;

-- name: leases :many
-- A lease's key is the repository's id; its subject is the task.
SELECT l.lease_id, l.key, l.owner, l.subject, l.term, l.expires_at, r.repo_key
FROM lease l LEFT JOIN gitea_repository r ON r.id = l.key
WHERE l.kind = 'gitea.repo' AND l.lease_id IS NOT NULL AND l.expires_at > :now ORDER BY l.key LIMIT 500;

-- name: repositories :many
SELECT r.id, r.repo_key, r.instance_id, r.owner, r.name, r.clone_url, r.default_branch, r.state, r.rev, r.home_worker,
  r.registered_at, r.updated_at, f.last_fetch_at
FROM gitea_repository r LEFT JOIN gitea_fetch f ON f.repository_id = r.id
WHERE (r.repo_key, r.id) > (:repo_key, :id) ORDER BY r.repo_key, r.id LIMIT :limit;

-- name: repository_named :one
-- A repository by its key, else by one that it had before a rename; the one seen last is meant.
SELECT id FROM (
  SELECT id, 0 AS former, updated_at AS at FROM gitea_repository WHERE repo_key = :repo_key
  UNION ALL SELECT repository_id, 1, until_at FROM gitea_repository_alias WHERE repo_key = :repo_key
) AS named ORDER BY former, at DESC LIMIT 1;

-- name: tasks :many
SELECT t.*, r.repo_key, s.thread_id, s.kind, s.number FROM gitea_task t
JOIN gitea_repository r ON r.id = t.repository_id JOIN gitea_session s ON s.id = t.session_id
WHERE (t.created_at, t.id) < (:at, :id) ORDER BY t.created_at DESC, t.id DESC LIMIT :limit;

-- name: tasks_in_state :many
SELECT t.*, r.repo_key, s.thread_id, s.kind, s.number FROM gitea_task t
JOIN gitea_repository r ON r.id = t.repository_id JOIN gitea_session s ON s.id = t.session_id
WHERE t.state = :state AND (t.created_at, t.id) < (:at, :id) ORDER BY t.created_at DESC, t.id DESC LIMIT :limit;

-- name: tasks_of_repository :many
SELECT t.*, r.repo_key, s.thread_id, s.kind, s.number FROM gitea_session s
JOIN gitea_task t ON t.session_id = s.id JOIN gitea_repository r ON r.id = t.repository_id
WHERE s.repository_id = :repository_id AND (:state = '' OR t.state = :state) AND (t.created_at, t.id) < (:at, :id)
ORDER BY t.created_at DESC, t.id DESC LIMIT :limit;

-- name: tasks_of_resource :many
SELECT t.*, r.repo_key, s.thread_id, s.kind, s.number FROM gitea_session s
JOIN gitea_task t ON t.session_id = s.id JOIN gitea_repository r ON r.id = t.repository_id
WHERE s.repository_id = :repository_id AND s.kind = :kind AND s.number = :number
  AND (:state = '' OR t.state = :state) AND (t.created_at, t.id) < (:at, :id)
ORDER BY t.created_at DESC, t.id DESC LIMIT :limit;

-- name: task :one
SELECT t.*, r.repo_key, s.thread_id, s.kind, s.number, s.state AS session_state, s.rev AS session_rev,
  s.created_at AS session_created_at, s.updated_at AS session_updated_at, i.body AS instruction
FROM gitea_task t JOIN gitea_repository r ON r.id = t.repository_id JOIN gitea_session s ON s.id = t.session_id
LEFT JOIN gitea_instruction i ON i.task_id = t.id WHERE t.id = :id;

-- name: latest_task :one
SELECT id FROM gitea_task WHERE session_id = :session_id ORDER BY created_at DESC, id DESC LIMIT 1;

-- name: latest_turn :one
SELECT r.id, r.external_id FROM gitea_turn t JOIN run r ON r.id = t.run_id
WHERE t.task_id = :task_id ORDER BY r.started_at DESC, r.id DESC LIMIT 1;

-- name: lease_of_task :one
SELECT lease_id FROM lease
WHERE kind = 'gitea.repo' AND key = :repository_id AND subject = :task_id AND lease_id IS NOT NULL AND expires_at > :now;

-- name: turns :many
SELECT r.id, r.external_id, r.thread_id, r.state, r.error_code, r.started_at, r.ended_at, t.kind,
  coalesce((SELECT max(e.seq) FROM run_event e WHERE e.run_id = r.id), 0) AS event_seq,
  (SELECT count(*) FROM gitea_comment c WHERE c.task_id = t.task_id AND c.run_id = r.id AND c.kind = 'mcp_final') AS answered,
  -- In official mode the agent posts through a bridge of its own, and what was seen of that is in the history.
  (SELECT count(*) FROM ref f JOIN event e ON e.seq = f.seq
    WHERE f.kind = 'turn' AND f.value = r.id AND e.action = 'mcp.call_observed') AS bridged
FROM gitea_turn t JOIN run r ON r.id = t.run_id WHERE t.task_id = :task_id ORDER BY r.started_at, r.id LIMIT 200;

-- name: comments :many
SELECT id, run_id, kind, resource_key, body_hash, state, native_id, error_code, created_at, updated_at
FROM gitea_comment WHERE task_id = :task_id ORDER BY created_at, id LIMIT 200;

-- name: follow_ups :many
SELECT number, delivery_key, comment_id, author, body, at FROM gitea_follow_up
WHERE task_id = :task_id ORDER BY number LIMIT 200;

-- name: branches :many
SELECT b.name, b.state, b.base_sha, b.published_sha, b.pull_number FROM gitea_branch b
WHERE b.session_id = :session_id ORDER BY b.created_at, b.id LIMIT 50;

-- name: run_events :many
-- What the agent did for a task, run after run: run ids are made in the order of time.
SELECT e.run_id, e.seq, e.at, e.body FROM gitea_turn t JOIN run_event e ON e.run_id = t.run_id
WHERE t.task_id = :task_id AND (e.run_id, e.seq) > (:run_id, :seq) ORDER BY e.run_id, e.seq LIMIT :limit;

-- name: last_words :one
-- The agent's last words in the latest turn that had any.
SELECT f.body FROM gitea_turn t JOIN gitea_final_text f ON f.run_id = t.run_id
WHERE t.task_id = :task_id ORDER BY t.run_id DESC LIMIT 1;
