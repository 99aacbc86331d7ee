-- name: by_id :one
SELECT id, state, rev, verb, command, address, tracking, carrier, attempts, berth FROM parcel WHERE id = :id;

-- name: all :many
SELECT id, state, rev FROM parcel ORDER BY id;

-- name: add_note :run
INSERT INTO note (parcel, n, words) VALUES (:parcel, :n, :words);

-- name: notes :many
SELECT n, words FROM note WHERE parcel = :parcel ORDER BY n;

-- name: add_label :run
INSERT INTO label (parcel, name) VALUES (:parcel, :name);

-- name: take_label :one
DELETE FROM label WHERE parcel = :parcel AND name = :name RETURNING name;

-- name: labels :many
SELECT name FROM label WHERE parcel = :parcel ORDER BY name;

-- name: force_state :run
-- What nobody may do: it exists so that a test can show the refusal.
UPDATE parcel SET state = :state WHERE id = :id;
