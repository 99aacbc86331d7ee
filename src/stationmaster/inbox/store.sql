-- name: by_id :one
SELECT source, event_id, payload_hash, disposition, received_at, command FROM inbox
WHERE source = :source AND event_id = :event_id;

-- name: add :run
INSERT INTO inbox (source, event_id, payload_hash, disposition, received_at, command)
VALUES (:source, :event_id, :payload_hash, :disposition, :received_at, :command)
ON CONFLICT (source, event_id) DO NOTHING;

-- name: prune :run
DELETE FROM inbox WHERE (source, event_id) IN (
  SELECT source, event_id FROM inbox WHERE received_at < :before ORDER BY received_at LIMIT :limit
);

-- name: old :one
SELECT count(*) AS n FROM inbox WHERE received_at < :before;
