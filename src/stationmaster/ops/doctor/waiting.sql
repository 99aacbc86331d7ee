-- What an operator should look at; reads only, each bounded by an index, a limit or the newest rows.

-- name: newest :one
SELECT coalesce((SELECT at FROM command ORDER BY seq DESC LIMIT 1), 0) AS at;

-- name: tasks :many
SELECT state, count(*) AS tasks, min(updated_at) AS oldest FROM gitea_task
WHERE state IN ('blocked_workspace', 'waiting_user', 'aborting') GROUP BY state;

-- name: leases :one
-- Held ones; `lapsed` are past their end and not yet taken over.
SELECT count(*) AS held, coalesce(sum(CASE WHEN expires_at <= :now THEN 1 ELSE 0 END), 0) AS lapsed
FROM lease WHERE lease_id IS NOT NULL;

-- name: intents :one
SELECT count(*) AS intents, coalesce(sum(CASE WHEN at <= :before THEN 1 ELSE 0 END), 0) AS late FROM open_intent;

-- name: comments :one
SELECT count(*) AS comments FROM gitea_comment WHERE state IN ('pending', 'sent') AND created_at <= :before;

-- name: unknowns :many
-- Effects whose outcome stayed unknown, among the newest events.
SELECT e.action, count(*) AS effects
FROM (SELECT action, intent_seq, outcome, at FROM event ORDER BY seq DESC LIMIT 50000) AS e
WHERE e.outcome = 'unknown' AND e.intent_seq IS NOT NULL AND e.at > :since
  AND NOT EXISTS (SELECT 1 FROM event f WHERE f.intent_seq = e.intent_seq AND f.outcome <> 'unknown')
GROUP BY e.action ORDER BY e.action;

-- name: alerts :many
SELECT action, count(*) AS alerts FROM event WHERE action > 'alert.' AND action < 'alert/' AND at > :since
GROUP BY action ORDER BY action;

-- name: receipts :one
SELECT count(*) AS receipts FROM receipt r JOIN command c ON c.seq = r.command
WHERE r.status = 'pending' AND c.at <= :before;

-- name: blocked_repositories :many
SELECT repo_key FROM gitea_repository WHERE state = 'blocked' ORDER BY repo_key LIMIT 20;

-- name: paused :one
SELECT reason, updated_by FROM gitea_control WHERE state = 'paused' ORDER BY id LIMIT 1;

-- name: repositories :many
SELECT state, owner, name, native_id, instance_id FROM gitea_repository ORDER BY updated_at DESC, id LIMIT :limit;

-- name: readings :many
SELECT l.instance_id, l.round_at, l.error_code,
  (SELECT count(*) FROM gitea_watch w WHERE w.instance_id = l.instance_id) AS watched,
  (SELECT count(*) FROM gitea_watch w WHERE w.instance_id = l.instance_id AND w.error_code IS NOT NULL) AS unread
FROM gitea_listing l ORDER BY l.instance_id LIMIT 50;
