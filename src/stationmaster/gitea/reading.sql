-- What is read at the forge beside deliveries: wishes to look, repositories watched, how far they were read.

-- Looks -----------------------------------------------------------------------------------------------------------

-- name: add_look :run
INSERT INTO gitea_look (id, instance_id, native_id, owner, name, kind, number, reason, delivery_id, asked_at, due_at,
  attempts, done_at, error_code)
VALUES (:id, :instance_id, :native_id, :owner, :name, :kind, :number, :reason, :delivery_id, :at, :at, 0, NULL, NULL);

-- name: due_looks :many
SELECT id, native_id, owner, name, kind, number, reason, delivery_id, asked_at, attempts FROM gitea_look
WHERE instance_id = :instance_id AND done_at IS NULL AND due_at <= :now ORDER BY due_at, id LIMIT :limit;

-- name: open_looks :one
SELECT count(*) AS n FROM gitea_look WHERE instance_id = :instance_id AND done_at IS NULL;

-- name: look_done :run
UPDATE gitea_look SET done_at = :at, attempts = attempts + 1, error_code = :error_code WHERE id = :id AND done_at IS NULL;

-- name: look_later :run
UPDATE gitea_look SET due_at = :due_at, attempts = attempts + 1, error_code = :error_code
WHERE id = :id AND done_at IS NULL;

-- name: old_look :one
SELECT id FROM gitea_look WHERE done_at IS NOT NULL AND done_at < :before LIMIT 1;

-- name: prune_looks :run
DELETE FROM gitea_look WHERE id IN (
  SELECT id FROM gitea_look WHERE done_at IS NOT NULL AND done_at < :before ORDER BY done_at LIMIT :limit
);

-- Repositories watched --------------------------------------------------------------------------------------------

-- name: watch :run
INSERT INTO gitea_watch (instance_id, native_id, owner, name, began_at, looked_at, error_code)
VALUES (:instance_id, :native_id, :owner, :name, :began_at, NULL, NULL)
ON CONFLICT (instance_id, native_id) DO UPDATE SET owner = excluded.owner, name = excluded.name;

-- name: watched :one
SELECT native_id, owner, name, began_at, looked_at, error_code FROM gitea_watch
WHERE instance_id = :instance_id AND native_id = :native_id;

-- name: watch_looked :run
UPDATE gitea_watch SET looked_at = :at, error_code = :error_code WHERE instance_id = :instance_id AND native_id = :native_id;

-- name: watched_named :one
SELECT native_id, owner, name, began_at, looked_at, error_code FROM gitea_watch
WHERE instance_id = :instance_id AND lower(owner) = :owner AND lower(name) = :name ORDER BY native_id DESC LIMIT 1;

-- name: watched_in_all :one
SELECT count(*) AS repositories, sum(CASE WHEN error_code IS NULL THEN 0 ELSE 1 END) AS failing, min(looked_at) AS oldest
FROM gitea_watch WHERE instance_id = :instance_id;

-- name: move_cursor :run
INSERT INTO gitea_cursor (instance_id, native_id, kind, read_to, new_from, moved_at)
VALUES (:instance_id, :native_id, :kind, :read_to, :new_from, :at)
ON CONFLICT (instance_id, native_id, kind) DO UPDATE SET read_to = excluded.read_to, new_from = excluded.new_from,
  moved_at = excluded.moved_at
WHERE excluded.read_to >= gitea_cursor.read_to AND excluded.new_from >= gitea_cursor.new_from;

-- name: cursor :one
SELECT read_to, new_from FROM gitea_cursor WHERE instance_id = :instance_id AND native_id = :native_id AND kind = :kind;

-- Forges ----------------------------------------------------------------------------------------------------------

-- name: listed :run
INSERT INTO gitea_listing (instance_id, forge_at, round_at, found, taken, failed, error_code)
VALUES (:instance_id, :forge_at, NULL, 0, 0, 0, NULL)
ON CONFLICT (instance_id) DO UPDATE SET forge_at = excluded.forge_at, error_code = NULL;

-- name: not_listed :run
INSERT INTO gitea_listing (instance_id, forge_at, round_at, found, taken, failed, error_code)
VALUES (:instance_id, NULL, NULL, 0, 0, 0, :error_code)
ON CONFLICT (instance_id) DO UPDATE SET error_code = excluded.error_code;

-- name: round_done :run
UPDATE gitea_listing SET round_at = :at, found = :found, taken = :taken, failed = :failed, error_code = NULL
WHERE instance_id = :instance_id;

-- name: gap_closed :run
UPDATE gitea_listing SET gap_repo = :repo_key, gap_since = :since, gap_until = :until, gap_taken = :taken
WHERE instance_id = :instance_id;

-- name: listing :one
SELECT forge_at, round_at, found, taken, failed, error_code FROM gitea_listing WHERE instance_id = :instance_id;

-- What is known ---------------------------------------------------------------------------------------------------

-- name: known :one
-- Whatever wording it had when it was asked. Comments and remarks on code are numbered together at the forge.
SELECT 1 AS known FROM gitea_trigger
WHERE instance_id = :instance_id AND native_id = :native_id
  AND origin IN (:origin, CASE :origin WHEN 'comment' THEN 'code_comment' WHEN 'code_comment' THEN 'comment' ELSE :origin END)
UNION ALL SELECT 1 FROM gitea_order
WHERE instance_id = :instance_id AND native_id = :native_id
  AND origin IN (:origin, CASE :origin WHEN 'comment' THEN 'code_comment' WHEN 'code_comment' THEN 'comment' ELSE :origin END)
LIMIT 1;
