-- name: by_id :one
SELECT id, state, rev, agent, subject, worker_id, external_id, thread_id, error_code, started_at, ended_at
FROM run WHERE id = :id;

-- name: of_subject :many
SELECT id, state, rev, agent, subject, worker_id, external_id, thread_id, error_code, started_at, ended_at
FROM run WHERE subject = :subject ORDER BY started_at, id;

-- name: open_of_worker :many
SELECT id, state, rev, agent, subject, worker_id, external_id, thread_id, error_code, started_at, ended_at
FROM run WHERE worker_id = :worker_id AND state = 'started' ORDER BY started_at, id;

-- name: add_event :run
INSERT INTO run_event (run_id, seq, at, kind, body) VALUES (:run_id, :seq, :at, :kind, :body)
ON CONFLICT (run_id, seq) DO NOTHING;

-- name: events :many
SELECT seq, at, kind, body FROM run_event WHERE run_id = :run_id AND seq > :after ORDER BY seq LIMIT :limit;

-- name: last_event :one
SELECT coalesce(max(seq), 0) AS seq FROM run_event WHERE run_id = :run_id;

-- name: count_events :one
SELECT count(*) AS n FROM run_event WHERE run_id = :run_id;

-- name: drop_events :run
DELETE FROM run_event WHERE run_id = :run_id AND seq IN (
  SELECT seq FROM run_event WHERE run_id = :run_id ORDER BY seq LIMIT :limit
);
