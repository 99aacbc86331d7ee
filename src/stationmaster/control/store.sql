-- name: active_by_hash :one
-- The key that a caller shows; a revoked one is as good as none.
SELECT id, name, scope FROM operator_key WHERE key_hash = :key_hash AND state = 'active';

-- name: active_by_name :one
SELECT id, rev FROM operator_key WHERE name = :name AND state = 'active';

-- name: all_keys :many
SELECT id, name, scope, state, created_at, revoked_at FROM operator_key ORDER BY created_at, id;
