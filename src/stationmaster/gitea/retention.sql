-- name: passed :one
SELECT seq FROM gitea_retention WHERE name = :name;

-- name: move_on :run
INSERT INTO gitea_retention (name, seq) VALUES (:name, :seq) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq;

-- name: ended :many
-- Tasks in the order in which they came to their end; each comes to it once.
SELECT j.seq, j.entity AS task_id, c.at FROM journal j JOIN command c ON c.seq = j.command
WHERE j.seq > :after AND j.seq <= :upto AND j.machine = 'gitea_task' AND j.to_state IN ('succeeded',
  'succeeded_with_rest_fallback', 'failed', 'failed_reply', 'cancelled', 'aborted', 'ignored', 'duplicate', 'rejected')
ORDER BY j.seq LIMIT :limit;

-- name: latest_at :one
SELECT max(at) AS at FROM command WHERE seq > :after AND seq <= :upto;

-- name: drop_instruction :run
DELETE FROM gitea_instruction WHERE task_id = :task_id;

-- name: blank_follow_ups :run
-- The row stays: its content key refers to it.
UPDATE gitea_follow_up SET body = '' WHERE task_id = :task_id AND body <> '';

-- name: drop_comment_bodies :run
DELETE FROM gitea_comment_body WHERE comment_key IN (
  SELECT id FROM gitea_comment WHERE task_id = :task_id AND state IN ('confirmed', 'failed')
);

-- name: drop_final_texts :run
DELETE FROM gitea_final_text WHERE run_id IN (SELECT run_id FROM gitea_turn WHERE task_id = :task_id);

-- name: payloads :one
SELECT (SELECT count(*) FROM gitea_instruction WHERE task_id = :task_id)
  + (SELECT count(*) FROM gitea_follow_up WHERE task_id = :task_id AND body <> '')
  + (SELECT count(*) FROM gitea_comment_body b JOIN gitea_comment c ON c.id = b.comment_key
     WHERE c.task_id = :task_id AND c.state IN ('confirmed', 'failed'))
  + (SELECT count(*) FROM gitea_final_text f JOIN gitea_turn t ON t.run_id = f.run_id WHERE t.task_id = :task_id) AS n;

-- name: old_refusals :one
SELECT count(*) AS n FROM gitea_refused_author WHERE day < :day;

-- name: drop_refusals :run
DELETE FROM gitea_refused_author WHERE (instance_id, author_id, day) IN (
  SELECT instance_id, author_id, day FROM gitea_refused_author WHERE day < :day ORDER BY day LIMIT :limit
);

-- name: living_threads :many
-- Conversations that may be resumed: of an open task, or touched within the time.
SELECT s.thread_id FROM gitea_session s WHERE s.repository_id = :repository_id AND s.thread_id IS NOT NULL
  AND (s.updated_at > :before OR EXISTS (
    SELECT 1 FROM gitea_task t WHERE t.session_id = s.id AND (t.updated_at > :before OR t.state NOT IN ('succeeded',
      'succeeded_with_rest_fallback', 'failed', 'failed_reply', 'cancelled', 'aborted', 'ignored', 'duplicate',
      'rejected'))));
