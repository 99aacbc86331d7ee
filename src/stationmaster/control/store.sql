-- name: active_by_hash :one
-- The key that a caller shows; a revoked one is as good as none.
SELECT id, name, scope FROM operator_key WHERE key_hash = :key_hash AND state = 'active';

-- name: active_by_name :one
SELECT id, rev FROM operator_key WHERE name = :name AND state = 'active';

-- name: all_keys :many
SELECT id, name, scope, state, created_at, revoked_at FROM operator_key ORDER BY created_at, id;

-- Logins at the console: the value of the cookie is never kept, only its hash

-- name: open_session :run
INSERT INTO console_session (id, key_id, opened_at, seen_at) VALUES (:id, :key_id, :at, :at);

-- name: session :one
-- A session whose key was revoked is none.
SELECT s.id, s.opened_at, s.seen_at, k.name, k.scope FROM console_session s JOIN operator_key k ON k.id = s.key_id
WHERE s.id = :id AND k.state = 'active' AND s.opened_at > :opened_after AND s.seen_at > :seen_after;

-- name: seen :run
UPDATE console_session SET seen_at = :at WHERE id = :id;

-- name: close_session :run
DELETE FROM console_session WHERE id = :id;

-- name: close_old :run
DELETE FROM console_session WHERE opened_at <= :opened_before OR seen_at <= :seen_before;
