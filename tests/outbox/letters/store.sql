-- name: letter :one
SELECT id, state, rev, term, native_id, error_code FROM letter WHERE id = :id;
