-- What the console's pages show and no command tells; every list is short or paged.

-- name: find_tasks :many
SELECT t.id, t.state, t.author, t.error_code, t.created_at, t.updated_at, t.resource_key, t.attempt, r.repo_key, s.kind,
  s.number, substr(i.body, 1, 240) AS asked
FROM gitea_task t JOIN gitea_repository r ON r.id = t.repository_id JOIN gitea_session s ON s.id = t.session_id
LEFT JOIN gitea_instruction i ON i.task_id = t.id
WHERE (t.created_at, t.id) < (:at, :id) AND t.created_at >= :since AND t.created_at < :until
  AND (:state = '' OR t.state = :state) AND (:repo_key = '' OR r.repo_key = :repo_key)
  AND (:kind = '' OR (s.kind = :kind AND s.number = :number))
  AND (:author = '' OR lower(t.author) = :author)
  AND (:words = '' OR lower(i.body) LIKE :words ESCAPE '!' OR t.id LIKE :words ESCAPE '!'
    OR lower(t.resource_key) LIKE :words ESCAPE '!' OR lower(t.author) LIKE :words ESCAPE '!')
ORDER BY t.created_at DESC, t.id DESC LIMIT :limit;

-- name: needing :many
-- Tasks that wait for a person, or ended badly lately.
SELECT t.id, t.state, t.author, t.error_code, t.created_at, t.updated_at, t.resource_key, t.attempt, r.repo_key, s.kind,
  s.number, substr(i.body, 1, 240) AS asked
FROM gitea_task t JOIN gitea_repository r ON r.id = t.repository_id JOIN gitea_session s ON s.id = t.session_id
LEFT JOIN gitea_instruction i ON i.task_id = t.id
WHERE t.state = 'blocked_workspace' OR (t.state = 'failed_reply' AND t.created_at > :since)
  OR (t.state = 'failed' AND t.created_at > :since)
ORDER BY t.created_at DESC, t.id DESC LIMIT :limit;

-- name: oldest_due :one
SELECT min(q.ready_at) AS at FROM gitea_ready q JOIN gitea_repository r ON r.id = q.repository_id
WHERE q.ready_at <= :now AND r.state = 'active';

-- name: asked_lately :many
SELECT created_at, state FROM gitea_task WHERE created_at > :since ORDER BY created_at LIMIT 20000;

-- name: held :one
SELECT count(*) AS n FROM gitea_hold h JOIN gitea_task t ON t.id = h.task_id
WHERE t.state = 'queued' AND h.released_at IS NULL AND (h.until_at IS NULL OR h.until_at > :now);

-- name: agent_events :many
-- What the agent did last for a task, newest first.
SELECT e.run_id, e.seq, e.at, e.body FROM gitea_turn t JOIN run_event e ON e.run_id = t.run_id
WHERE t.task_id = :task_id ORDER BY e.run_id DESC, e.seq DESC LIMIT :limit;

-- name: newest_event :one
SELECT max(e.seq) AS seq FROM run_event e WHERE e.run_id = (
  SELECT t.run_id FROM gitea_turn t WHERE t.task_id = :task_id ORDER BY t.opened_at DESC, t.run_id DESC LIMIT 1
);

-- name: newest_command :one
SELECT max(seq) AS seq FROM command;

-- name: moves :many
-- The states that a task went through.
SELECT c.at, j.from_state, j.to_state, j.verb, c.actor FROM journal j JOIN command c ON c.seq = j.command
WHERE j.machine = 'gitea_task' AND j.entity = :task_id ORDER BY j.rev;

-- name: tasks_of_session :many
SELECT id, state, created_at FROM gitea_task WHERE session_id = :session_id
ORDER BY created_at DESC, id DESC LIMIT 50;

-- name: workers :many
SELECT worker_id, incarnation, seen_at FROM worker ORDER BY seen_at DESC LIMIT 50;

-- name: watched :many
-- The repositories that the bot sees, and how far each was read.
SELECT w.instance_id, w.owner, w.name, w.looked_at, w.error_code, min(c.read_to) AS read_to
FROM gitea_watch w LEFT JOIN gitea_cursor c ON c.instance_id = w.instance_id AND c.native_id = w.native_id
GROUP BY w.instance_id, w.native_id, w.owner, w.name, w.looked_at, w.error_code
ORDER BY w.instance_id, w.owner, w.name LIMIT 500;
