-- name: add_open_intent :run
INSERT INTO open_intent (seq, action, subject, command, at) VALUES (:seq, :action, :subject, :command, :at);

-- name: close_intent :run
DELETE FROM open_intent WHERE seq = :seq;

-- name: intent_action :one
SELECT action FROM event WHERE seq = :seq AND kind = 'intent';

-- name: receipt :one
SELECT name, dedupe, args_hash, status, result, command, finished FROM receipt
WHERE name = :name AND dedupe = :dedupe;

-- name: add_receipt :run
INSERT INTO receipt (name, dedupe, args_hash, status, result, command)
VALUES (:name, :dedupe, :args_hash, :status, :result, :command);

-- name: finish_receipt :run
UPDATE receipt SET status = :status, result = :result, finished = :finished
WHERE name = :name AND dedupe = :dedupe AND status = 'pending';

-- name: pending_receipts :many
SELECT name, dedupe, args_hash, status, result, command, finished FROM receipt
WHERE status = 'pending' ORDER BY command LIMIT :limit;

-- name: lease_row :one
SELECT kind, key, term, lease_id, owner, incarnation, subject, expires_at FROM lease
WHERE kind = :kind AND key = :key;

-- name: lease_locked :one
-- Inside a command: nobody may take the lease away until the command has committed.
SELECT kind, key, term, lease_id, owner, incarnation, subject, expires_at FROM lease
WHERE kind = :kind AND key = :key;

-- name: lease_locked :one [postgres]
SELECT kind, key, term, lease_id, owner, incarnation, subject, expires_at FROM lease
WHERE kind = :kind AND key = :key FOR UPDATE;

-- name: lease_first :run
INSERT INTO lease (kind, key, term, lease_id, owner, incarnation, subject, expires_at)
VALUES (:kind, :key, 1, :lease_id, :owner, :incarnation, :subject, :expires_at)
ON CONFLICT (kind, key) DO NOTHING;

-- name: lease_next :run
UPDATE lease SET term = term + 1, lease_id = :lease_id, owner = :owner, incarnation = :incarnation,
  subject = :subject, expires_at = :expires_at
WHERE kind = :kind AND key = :key AND term = :term;

-- name: lease_heartbeat :run
UPDATE lease SET expires_at = CASE WHEN expires_at > :expires_at THEN expires_at ELSE :expires_at END
WHERE kind = :kind AND key = :key AND lease_id = :lease_id AND expires_at > :now
  AND NOT EXISTS (
    SELECT 1 FROM worker WHERE worker_id = lease.owner AND worker.incarnation <> lease.incarnation
  );

-- name: lease_free :run
UPDATE lease SET lease_id = NULL, owner = NULL, incarnation = NULL, subject = NULL, expires_at = NULL
WHERE kind = :kind AND key = :key AND lease_id = :lease_id;

-- name: lease_lapsed :many
-- Expired, or of an incarnation that its own successor has proven dead.
SELECT kind, key, term, lease_id, owner, incarnation, subject, expires_at FROM lease
WHERE kind = :kind AND lease_id IS NOT NULL AND expires_at <= :now
UNION
SELECT l.kind, l.key, l.term, l.lease_id, l.owner, l.incarnation, l.subject, l.expires_at
FROM worker w JOIN lease l ON l.owner = w.worker_id AND l.kind = :kind AND l.incarnation <> w.incarnation
WHERE l.lease_id IS NOT NULL
ORDER BY 2 LIMIT :limit;

-- name: worker :one
SELECT worker_id, incarnation, started_at, seen_at FROM worker WHERE worker_id = :worker_id;

-- name: workers :many
SELECT worker_id, incarnation, started_at, seen_at FROM worker ORDER BY worker_id;

-- name: register_worker :run
INSERT INTO worker (worker_id, incarnation, started_at, seen_at) VALUES (:worker_id, :incarnation, :now, :now)
ON CONFLICT (worker_id) DO UPDATE
SET incarnation = excluded.incarnation, started_at = excluded.started_at, seen_at = excluded.seen_at;

-- name: seen_worker :run
UPDATE worker SET seen_at = :now WHERE worker_id = :worker_id AND incarnation = :incarnation;
