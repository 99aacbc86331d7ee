-- Reads for metrics. Windows of the history are bounded by its numbers, everything else by an index and a limit: a
-- scrape must cost the same on a ledger of a million tasks.

-- History, one window at a time (the machine is named so that its index is not used: it would find all of the past)

-- name: moves :many
-- `since` is when the task came into the state that it left.
SELECT j.from_state, j.to_state, c.at,
  (SELECT b.at FROM journal p JOIN command b ON b.seq = p.command
    WHERE p.machine = j.machine AND p.entity = j.entity AND p.rev = j.rev - 1) AS since
FROM journal j JOIN command c ON c.seq = j.command
WHERE j.seq > :after AND j.seq <= :below AND j.machine || '' = 'gitea_task';

-- name: answers :many
-- How long people waited: from what was asked last, the task's beginning or a follow-up of it.
SELECT c.at, coalesce((SELECT max(f.at) FROM gitea_follow_up f WHERE f.task_id = t.id), t.created_at) AS asked_at
FROM journal j JOIN command c ON c.seq = j.command JOIN gitea_task t ON t.id = j.entity
WHERE j.seq > :after AND j.seq <= :below AND j.machine || '' = 'gitea_task'
  AND j.to_state IN ('succeeded', 'succeeded_with_rest_fallback');

-- name: turns :many
SELECT j.to_state, c.at, r.started_at
FROM journal j JOIN command c ON c.seq = j.command JOIN run r ON r.id = j.entity
WHERE j.seq > :after AND j.seq <= :below AND j.machine || '' = 'run' AND j.to_state <> 'started';

-- name: comments :many
SELECT m.kind, j.to_state, j.entity, c.at, t.created_at AS asked_at
FROM journal j JOIN command c ON c.seq = j.command
JOIN gitea_comment m ON m.id = j.entity JOIN gitea_task t ON t.id = m.task_id
WHERE j.seq > :after AND j.seq <= :below AND j.machine || '' = 'gitea_comment' AND j.to_state IN ('confirmed', 'failed');

-- name: events :many
-- What an event holds is read only where it is counted by.
SELECT e.seq, e.action, e.kind, e.outcome, e.command, c.name AS command_name,
  CASE WHEN e.kind = 'refusal' OR e.action LIKE 'alert.%' OR e.action IN ('catchup.gap', 'task.held', 'recovery.adopt')
    THEN e.data END AS data
FROM event e JOIN command c ON c.seq = e.command
WHERE e.seq > :after AND e.seq <= :below ORDER BY e.seq;

-- What is true now ------------------------------------------------------------------------------------------------

-- name: in_state :one
SELECT count(*) AS n FROM (SELECT 1 AS one FROM gitea_task WHERE state = :state LIMIT 10000) AS counted;

-- name: waiting :one
-- Since when the task waits that was asked for first of those that may be claimed (see the claim's own rule).
SELECT min(w.updated_at) AS since FROM (
  SELECT t.id, t.session_id, t.repository_id, t.created_at, t.updated_at FROM gitea_task t
  WHERE t.state = 'queued' ORDER BY t.created_at, t.id LIMIT 2000
) AS w
WHERE EXISTS (SELECT 1 FROM gitea_repository r WHERE r.id = w.repository_id AND r.state = 'active')
  AND NOT EXISTS (
    SELECT 1 FROM gitea_hold h
    WHERE h.task_id = w.id AND h.released_at IS NULL AND (h.until_at IS NULL OR h.until_at > :now)
  )
  AND NOT EXISTS (
    SELECT 1 FROM gitea_task o WHERE o.session_id = w.session_id
      AND (o.created_at < w.created_at OR (o.created_at = w.created_at AND o.id < w.id))
      AND o.state IN (
        'received', 'queued', 'preparing', 'running', 'waiting_user', 'verifying_reply', 'retry_wait', 'blocked_workspace',
        'aborting'
      )
      AND o.state <> 'waiting_user'
  );

-- name: retrying :one
SELECT min(w.next_retry_at) AS since FROM (
  SELECT next_retry_at FROM gitea_task WHERE state = 'retry_wait' ORDER BY created_at, id LIMIT 2000
) AS w WHERE w.next_retry_at <= :now;

-- name: held :many
SELECT h.reason, count(*) AS n FROM (
  SELECT task_id, reason FROM gitea_hold WHERE released_at IS NULL AND (until_at IS NULL OR until_at > :now)
  ORDER BY since, task_id LIMIT 2000
) AS h WHERE EXISTS (SELECT 1 FROM gitea_task t WHERE t.id = h.task_id AND t.state = 'queued') GROUP BY h.reason;

-- name: paused :one
SELECT state FROM gitea_control WHERE state = 'paused' LIMIT 1;

-- name: intents :one
SELECT count(*) AS n, min(at) AS since FROM (SELECT at FROM open_intent ORDER BY seq LIMIT 2000) AS o;

-- name: open_comments :one
SELECT count(*) AS n, min(created_at) AS since FROM (
  SELECT created_at FROM gitea_comment WHERE state IN ('pending', 'sent') ORDER BY created_at LIMIT 2000
) AS o;

-- name: leases :one
SELECT count(*) AS n FROM (
  SELECT 1 AS one FROM lease WHERE kind = 'gitea.repo' AND lease_id IS NOT NULL AND expires_at > :now LIMIT 2000
) AS held;

-- name: forges :many
SELECT l.instance_id, l.round_at, l.forge_at,
  (SELECT count(*) FROM (SELECT 1 AS one FROM gitea_watch w
    WHERE w.instance_id = l.instance_id AND w.error_code IS NOT NULL LIMIT 2000) AS u) AS unread,
  (SELECT count(*) FROM (SELECT 1 AS one FROM gitea_look k
    WHERE k.instance_id = l.instance_id AND k.done_at IS NULL LIMIT 2000) AS k) AS looks
FROM gitea_listing l ORDER BY l.instance_id LIMIT 100;

-- name: bytes :one
SELECT page_count * page_size AS bytes FROM pragma_page_count(), pragma_page_size();

-- name: bytes :one [postgres]
SELECT pg_database_size(current_database()) AS bytes;
