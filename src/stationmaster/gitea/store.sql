-- Repositories ---------------------------------------------------------------------------------------------------

-- name: repository :one
SELECT id, state, rev, instance_id, native_id, owner, name, repo_key, clone_url, default_branch, home_worker, registered_at,
  updated_at FROM gitea_repository WHERE id = :id;

-- name: repository_by_native :one
SELECT id, state, rev, instance_id, native_id, owner, name, repo_key, clone_url, default_branch, home_worker, registered_at,
  updated_at FROM gitea_repository WHERE instance_id = :instance_id AND native_id = :native_id;

-- name: repository_by_key :one
-- Two repositories may carry one key while a rename has not been seen yet; the one seen last is meant.
SELECT id, state, rev, instance_id, native_id, owner, name, repo_key, clone_url, default_branch, home_worker, registered_at,
  updated_at FROM gitea_repository WHERE repo_key = :repo_key ORDER BY updated_at DESC LIMIT 1;

-- name: repository_by_alias :one
SELECT repository_id FROM gitea_repository_alias WHERE repo_key = :repo_key ORDER BY until_at DESC LIMIT 1;

-- name: repositories :many
SELECT id, state, rev, instance_id, native_id, owner, name, repo_key, clone_url, default_branch, home_worker, registered_at,
  updated_at FROM gitea_repository ORDER BY repo_key, id;

-- name: add_alias :run
INSERT INTO gitea_repository_alias (repo_key, repository_id, until_at) VALUES (:repo_key, :repository_id, :until_at)
ON CONFLICT (repo_key, repository_id) DO UPDATE SET until_at = excluded.until_at;

-- name: fetched :run
INSERT INTO gitea_fetch (repository_id, last_fetch_at) VALUES (:repository_id, :at)
ON CONFLICT (repository_id) DO UPDATE SET last_fetch_at = excluded.last_fetch_at;

-- name: last_fetch :one
SELECT last_fetch_at FROM gitea_fetch WHERE repository_id = :repository_id;

-- What is ready ---------------------------------------------------------------------------------------------------

-- name: ready :run
INSERT INTO gitea_ready (repository_id, ready_at) VALUES (:repository_id, :ready_at)
ON CONFLICT (repository_id) DO UPDATE SET ready_at = excluded.ready_at WHERE excluded.ready_at < gitea_ready.ready_at;

-- name: ready_locked :one
SELECT ready_at FROM gitea_ready WHERE repository_id = :repository_id;

-- name: ready_locked :one [postgres]
SELECT ready_at FROM gitea_ready WHERE repository_id = :repository_id FOR UPDATE;

-- name: ready_later :run
UPDATE gitea_ready SET ready_at = :ready_at WHERE repository_id = :repository_id;

-- name: not_ready :run
DELETE FROM gitea_ready WHERE repository_id = :repository_id;

-- name: ready_repositories :many
-- A forge's repositories with something due that nobody works on, oldest first; only their home worker may take them.
-- Here and below, a forge's id with nothing added to it keeps the plan from beginning at all repositories of the forge.
SELECT q.repository_id, q.ready_at FROM gitea_ready q
JOIN gitea_repository r ON r.id = q.repository_id
LEFT JOIN lease l ON l.kind = 'gitea.repo' AND l.key = q.repository_id
WHERE q.ready_at <= :now AND r.instance_id || '' = :instance_id AND r.state = 'active' AND (r.home_worker IS NULL OR r.home_worker = :worker_id)
  AND (l.lease_id IS NULL OR l.expires_at <= :now)
ORDER BY q.ready_at, q.repository_id LIMIT :limit;

-- name: candidate :one
-- The oldest due task of a repository whose session has no older task under way (GW-R-115).
SELECT t.id, t.state, t.rev, t.delivery_key, t.delivery_id, t.repository_id, t.session_id, t.resource_key,
  t.comment_id, t.author, t.author_id, t.sender_may, t.base_ref, t.head_ref, t.attempt, t.reply_attempt,
  t.unblock_attempt, t.next_retry_at, t.retry_purpose, t.error_code, t.reply_failure, t.created_at, t.updated_at
FROM gitea_task t
WHERE t.repository_id = :repository_id AND t.state IN ('queued', 'retry_wait')
  AND (t.next_retry_at IS NULL OR t.next_retry_at <= :now)
  AND NOT EXISTS (
    SELECT 1 FROM gitea_task o WHERE o.session_id = t.session_id
      AND (o.created_at < t.created_at OR (o.created_at = t.created_at AND o.id < t.id))
      AND o.state IN ('received', 'queued', 'preparing', 'running', 'waiting_user', 'verifying_reply', 'retry_wait', 'blocked_workspace',
  'aborting')
      AND o.state <> 'waiting_user'
  )
  AND NOT EXISTS (
    SELECT 1 FROM gitea_hold h WHERE h.task_id = t.id AND h.released_at IS NULL AND (h.until_at IS NULL OR h.until_at > :now)
  )
ORDER BY t.created_at, t.id LIMIT 1;

-- name: next_due :one
SELECT min(coalesce(t.next_retry_at, h.until_at)) AS due FROM gitea_task t
LEFT JOIN gitea_hold h ON h.task_id = t.id AND h.released_at IS NULL
WHERE t.repository_id = :repository_id AND t.state IN ('queued', 'retry_wait')
  AND coalesce(t.next_retry_at, h.until_at, 0) > :now;

-- name: unlisted_ready :many
-- A task that an older one of its session holds up is listed again when that one moves.
SELECT DISTINCT t.repository_id FROM gitea_task t
WHERE t.state IN ('queued', 'retry_wait')
  AND NOT EXISTS (SELECT 1 FROM gitea_ready q WHERE q.repository_id = t.repository_id)
  AND NOT EXISTS (
    SELECT 1 FROM gitea_hold h WHERE h.task_id = t.id AND h.released_at IS NULL AND h.until_at IS NULL
  )
  AND NOT EXISTS (
    SELECT 1 FROM gitea_task o WHERE o.session_id = t.session_id
      AND (o.created_at < t.created_at OR (o.created_at = t.created_at AND o.id < t.id))
      AND o.state IN ('received', 'queued', 'preparing', 'running', 'waiting_user', 'verifying_reply', 'retry_wait', 'blocked_workspace',
  'aborting')
      AND o.state <> 'waiting_user'
  )
LIMIT :limit;

-- Sessions and branches -------------------------------------------------------------------------------------------

-- name: session :one
SELECT id, state, rev, repository_id, kind, number, thread_id, tool_set, created_at, updated_at FROM gitea_session WHERE id = :id;

-- name: session_of :one
SELECT id, state, rev, repository_id, kind, number, thread_id, tool_set, created_at, updated_at FROM gitea_session WHERE repository_id = :repository_id AND kind = :kind AND number = :number;

-- name: current_branch :one
SELECT id, state, rev, session_id, name, base_sha, published_sha, pull_number, created_at, updated_at FROM gitea_branch WHERE session_id = :session_id AND state = 'current';

-- name: branches :many
SELECT id, state, rev, session_id, name, base_sha, published_sha, pull_number, created_at, updated_at FROM gitea_branch WHERE session_id = :session_id ORDER BY created_at, id;

-- Tasks -----------------------------------------------------------------------------------------------------------

-- name: task :one
SELECT id, state, rev, delivery_key, delivery_id, repository_id, session_id, resource_key, comment_id, author, author_id,
  sender_may, base_ref, head_ref, attempt, reply_attempt, unblock_attempt, next_retry_at, retry_purpose, error_code,
  reply_failure, created_at, updated_at FROM gitea_task WHERE id = :id;

-- name: latest_task :one
SELECT id, state, rev, delivery_key, delivery_id, repository_id, session_id, resource_key, comment_id, author, author_id,
  sender_may, base_ref, head_ref, attempt, reply_attempt, unblock_attempt, next_retry_at, retry_purpose, error_code,
  reply_failure, created_at, updated_at FROM gitea_task WHERE session_id = :session_id ORDER BY created_at DESC, id DESC LIMIT 1;

-- name: asked_since :many
-- The tasks of a session that are younger than a time, in the order in which they were asked.
SELECT t.id, i.asked_at FROM gitea_task t JOIN gitea_instruction i ON i.task_id = t.id
WHERE t.session_id = :session_id AND t.created_at > :after AND i.asked_at IS NOT NULL
ORDER BY i.asked_at, t.comment_id, t.id;

-- name: waiting_task :one
SELECT id, state, rev, delivery_key, delivery_id, repository_id, session_id, resource_key, comment_id, author, author_id,
  sender_may, base_ref, head_ref, attempt, reply_attempt, unblock_attempt, next_retry_at, retry_purpose, error_code,
  reply_failure, created_at, updated_at FROM gitea_task WHERE session_id = :session_id AND state = 'waiting_user'
ORDER BY created_at DESC, id DESC LIMIT 1;

-- name: active_tasks :many
SELECT id, state, rev, delivery_key, delivery_id, repository_id, session_id, resource_key, comment_id, author, author_id,
  sender_may, base_ref, head_ref, attempt, reply_attempt, unblock_attempt, next_retry_at, retry_purpose, error_code,
  reply_failure, created_at, updated_at FROM gitea_task WHERE state IN ('preparing', 'running', 'verifying_reply', 'aborting')
  AND repository_id = :repository_id ORDER BY created_at, id;

-- name: all_active_tasks :many
SELECT t.id, t.state, t.rev, t.delivery_key, t.delivery_id, t.repository_id, t.session_id, t.resource_key, t.comment_id,
  t.author, t.author_id, t.sender_may, t.base_ref, t.head_ref, t.attempt, t.reply_attempt, t.unblock_attempt,
  t.next_retry_at, t.retry_purpose, t.error_code, t.reply_failure, t.created_at, t.updated_at
FROM gitea_task t JOIN gitea_repository r ON r.id = t.repository_id
WHERE t.state IN ('preparing', 'running', 'verifying_reply', 'aborting') AND r.instance_id || '' = :instance_id
ORDER BY t.created_at, t.id LIMIT :limit;

-- name: open_by_forge :many
-- How many tasks each forge has that are not at their end.
SELECT r.instance_id, count(*) AS n FROM gitea_task t JOIN gitea_repository r ON r.id = t.repository_id
WHERE t.state IN ('received', 'queued', 'preparing', 'running', 'waiting_user', 'verifying_reply', 'retry_wait', 'blocked_workspace',
  'aborting')
GROUP BY r.instance_id ORDER BY r.instance_id;

-- name: tell_author :run
INSERT INTO gitea_refused_author (instance_id, author_id, day) VALUES (:instance_id, :author_id, :day)
ON CONFLICT (instance_id, author_id, day) DO NOTHING;

-- name: add_instruction :run
INSERT INTO gitea_instruction (task_id, body, asked_at) VALUES (:task_id, :body, :asked_at);

-- name: instruction :one
SELECT body FROM gitea_instruction WHERE task_id = :task_id;

-- name: add_follow_up :run
INSERT INTO gitea_follow_up (task_id, number, delivery_key, comment_id, author, author_id, sender_may, body, at, asked_at)
VALUES (:task_id, :number, :delivery_key, :comment_id, :author, :author_id, :sender_may, :body, :at, :asked_at);

-- name: follow_ups :many
SELECT task_id, number, comment_id, author, author_id, sender_may, body, at FROM gitea_follow_up
WHERE task_id = :task_id ORDER BY number;

-- name: add_trigger :run
INSERT INTO gitea_trigger (instance_id, origin, native_id, version, task_id, follow_up)
VALUES (:instance_id, :origin, :native_id, :version, :task_id, :follow_up)
ON CONFLICT (instance_id, origin, native_id, version) DO NOTHING;

-- name: trigger :one
-- A wording that is not newer than one that was asked is known. Comments and remarks on code are numbered together at
-- the forge, and events do not tell them apart.
SELECT task_id, follow_up FROM gitea_trigger
WHERE instance_id = :instance_id AND native_id = :native_id AND version >= :version
  AND origin IN (:origin, CASE :origin WHEN 'comment' THEN 'code_comment' WHEN 'code_comment' THEN 'comment' ELSE :origin END)
ORDER BY version LIMIT 1;

-- name: add_delivery :run
INSERT INTO gitea_delivery (delivery_key, delivery_id, event_type, received_at, normalized, status, reason_code,
  http_status, response_body, payload_hash, task_id, expires_at)
VALUES (:delivery_key, :delivery_id, :event_type, :received_at, :normalized, :status, :reason_code, :http_status,
  :response_body, :payload_hash, :task_id, :expires_at);

-- name: delivery :one
SELECT delivery_key, delivery_id, event_type, received_at, normalized, status, reason_code, http_status, response_body,
  payload_hash, task_id, expires_at FROM gitea_delivery WHERE delivery_key = :delivery_key;

-- name: old_deliveries :one
SELECT count(*) AS n FROM gitea_delivery d LEFT JOIN gitea_task t ON t.id = d.task_id
WHERE d.expires_at <= :now AND (t.id IS NULL OR t.state IN ('succeeded', 'succeeded_with_rest_fallback', 'failed',
  'failed_reply', 'cancelled', 'aborted', 'ignored', 'duplicate', 'rejected'));

-- name: prune_deliveries :run
-- What is past its time and whose task is at its end (GW-R-027); the content keys stay.
DELETE FROM gitea_delivery WHERE delivery_key IN (
  SELECT d.delivery_key FROM gitea_delivery d LEFT JOIN gitea_task t ON t.id = d.task_id
  WHERE d.expires_at <= :now AND (t.id IS NULL OR t.state IN ('succeeded', 'succeeded_with_rest_fallback', 'failed',
    'failed_reply', 'cancelled', 'aborted', 'ignored', 'duplicate', 'rejected'))
  ORDER BY d.expires_at LIMIT :limit
);

-- Turns -----------------------------------------------------------------------------------------------------------

-- name: add_turn :run
INSERT INTO gitea_turn (run_id, task_id, kind, head_before, opened_at)
VALUES (:run_id, :task_id, :kind, :head_before, :opened_at);

-- name: turn :one
SELECT run_id, task_id, kind, head_before FROM gitea_turn WHERE run_id = :run_id;

-- name: turns :many
-- By the ledger's time, which never goes back; run ids are made by the machine's clock, which may.
SELECT run_id, task_id, kind, head_before FROM gitea_turn WHERE task_id = :task_id ORDER BY opened_at, run_id;

-- name: set_final_text :run
INSERT INTO gitea_final_text (run_id, body) VALUES (:run_id, :body)
ON CONFLICT (run_id) DO UPDATE SET body = excluded.body;

-- name: final_text :one
SELECT body FROM gitea_final_text WHERE run_id = :run_id;

-- Comments --------------------------------------------------------------------------------------------------------

-- name: comment :one
SELECT id, state, rev, task_id, run_id, kind, repository_id, resource_key, number, body_hash, term, native_id, error_code,
  created_at, updated_at FROM gitea_comment WHERE id = :id;

-- name: comments :many
SELECT id, state, rev, task_id, run_id, kind, repository_id, resource_key, number, body_hash, term, native_id, error_code,
  created_at, updated_at FROM gitea_comment WHERE task_id = :task_id ORDER BY created_at, id;

-- name: open_comments :many
SELECT c.id, c.state, c.rev, c.task_id, c.run_id, c.kind, c.repository_id, c.resource_key, c.number, c.body_hash, c.term,
  c.native_id, c.error_code, c.created_at, c.updated_at
FROM gitea_comment c JOIN gitea_repository r ON r.id = c.repository_id
WHERE c.state IN ('pending', 'sent') AND c.created_at <= :before AND r.instance_id || '' = :instance_id
ORDER BY c.created_at, c.id LIMIT :limit;

-- name: add_comment_body :run
INSERT INTO gitea_comment_body (comment_key, body) VALUES (:comment_key, :body);

-- name: comment_body :one
SELECT body FROM gitea_comment_body WHERE comment_key = :comment_key;

-- Control ---------------------------------------------------------------------------------------------------------

-- name: control :one
SELECT id, state, rev, reason, updated_by, updated_at FROM gitea_control WHERE id = 'default';

-- Operators -------------------------------------------------------------------------------------------------------

-- name: task_locked :one
-- Requests about one task come one after another: each sees what the one before stored.
SELECT state FROM gitea_task WHERE id = :id;

-- name: task_locked :one [postgres]
SELECT state FROM gitea_task WHERE id = :id FOR UPDATE;

-- Orders by comment -------------------------------------------------------------------------------------------------

-- name: order :one
SELECT id, state, rev, instance_id, origin, native_id, version, word, delivery_id, repository_id, resource_key, kind, number,
  author, author_id, sender_may, asked_at, error_code, created_at, updated_at FROM gitea_order WHERE id = :id;

-- name: order_by_key :one
SELECT id, state, word FROM gitea_order
WHERE instance_id = :instance_id AND native_id = :native_id AND version >= :version
  AND origin IN (:origin, CASE :origin WHEN 'comment' THEN 'code_comment' WHEN 'code_comment' THEN 'comment' ELSE :origin END)
ORDER BY version LIMIT 1;

-- name: open_orders :many
SELECT o.id, o.state, o.rev, o.instance_id, o.origin, o.native_id, o.version, o.word, o.delivery_id, o.repository_id,
  o.resource_key, o.kind, o.number, o.author, o.author_id, o.sender_may, o.asked_at, o.error_code, o.created_at, o.updated_at
FROM gitea_order o WHERE o.state IN ('asked', 'standing') AND o.instance_id = :instance_id
ORDER BY o.created_at, o.id LIMIT :limit;

-- name: open_tasks :many
-- Every task of a conversation that is not at its end, oldest first.
SELECT t.id, t.state, t.rev, t.delivery_key, t.delivery_id, t.repository_id, t.session_id, t.resource_key,
  t.comment_id, t.author, t.author_id, t.sender_may, t.base_ref, t.head_ref, t.attempt, t.reply_attempt,
  t.unblock_attempt, t.next_retry_at, t.retry_purpose, t.error_code, t.reply_failure, t.created_at, t.updated_at
FROM gitea_task t WHERE t.session_id = :session_id AND t.state IN ('received', 'queued', 'preparing', 'running', 'waiting_user', 'verifying_reply', 'retry_wait', 'blocked_workspace',
  'aborting')
ORDER BY t.created_at, t.id LIMIT :limit;

-- name: latest_allowed :one
-- The newest task of a conversation whose author was not refused: nobody else may have a stranger's words done again.
SELECT t.id, t.state, t.rev, t.delivery_key, t.delivery_id, t.repository_id, t.session_id, t.resource_key,
  t.comment_id, t.author, t.author_id, t.sender_may, t.base_ref, t.head_ref, t.attempt, t.reply_attempt,
  t.unblock_attempt, t.next_retry_at, t.retry_purpose, t.error_code, t.reply_failure, t.created_at, t.updated_at
FROM gitea_task t WHERE t.session_id = :session_id
  AND (t.error_code IS NULL OR t.error_code NOT IN ('author_not_allowed', 'author_not_verifiable'))
ORDER BY t.created_at DESC, t.id DESC LIMIT 1;

-- name: asked_at :one
SELECT i.asked_at AS first, (SELECT max(f.asked_at) FROM gitea_follow_up f WHERE f.task_id = i.task_id) AS last
FROM gitea_instruction i WHERE i.task_id = :task_id;

-- name: add_stop :run
INSERT INTO gitea_stop (task_id, code, order_id, at) VALUES (:task_id, :code, :order_id, :at)
ON CONFLICT (task_id) DO NOTHING;

-- name: stop :one
SELECT task_id, code, order_id, at FROM gitea_stop WHERE task_id = :task_id;

-- name: stopped_by :many
SELECT task_id FROM gitea_stop WHERE order_id = :order_id ORDER BY task_id;

-- name: note :one
SELECT id, state, rev, order_id, repository_id, resource_key, number, body, native_id, error_code, created_at, updated_at
FROM gitea_note WHERE id = :id;

-- name: open_notes :many
SELECT n.id, n.state, n.rev, n.order_id, n.repository_id, n.resource_key, n.number, n.body, n.native_id, n.error_code,
  n.created_at, n.updated_at
FROM gitea_note n JOIN gitea_repository r ON r.id = n.repository_id
WHERE n.state IN ('pending', 'sent') AND r.instance_id = :instance_id ORDER BY n.created_at, n.id LIMIT :limit;

-- Comments said into a running turn ---------------------------------------------------------------------------------

-- name: steer :one
SELECT s.id, s.state, s.rev, s.task_id, coalesce(w.said, '') AS said, s.task_after, s.created_at, s.updated_at
FROM gitea_steer s LEFT JOIN gitea_steer_said w ON w.steer_id = s.id WHERE s.id = :id;

-- name: steers :many
SELECT s.id, s.state, s.rev, s.task_id, coalesce(w.said, '') AS said, s.task_after, s.created_at, s.updated_at
FROM gitea_steer s LEFT JOIN gitea_steer_said w ON w.steer_id = s.id
WHERE s.task_id = :task_id AND s.state IN ('waiting', 'sent') ORDER BY s.created_at, s.id;

-- name: keep_said :run
INSERT INTO gitea_steer_said (steer_id, said) VALUES (:steer_id, :said);

-- name: drop_said :run
DELETE FROM gitea_steer_said WHERE steer_id = :steer_id;

-- name: steered_tasks :many
SELECT DISTINCT task_id FROM gitea_steer WHERE state IN ('waiting', 'sent');

-- name: retarget_trigger :run
UPDATE gitea_trigger SET task_id = :task_id, follow_up = :follow_up
WHERE instance_id = :instance_id AND origin = :origin AND native_id = :native_id AND version = :version;

-- name: retarget_delivery :run
UPDATE gitea_delivery SET task_id = :task_id WHERE delivery_key = :delivery_key;

-- Start receipts that are kept up to date ---------------------------------------------------------------------------

-- name: open_live_receipt :run
INSERT INTO gitea_live_receipt (task_id, shown, closed) VALUES (:task_id, NULL, 0) ON CONFLICT (task_id) DO NOTHING;

-- name: live_receipts :many
SELECT l.task_id, l.shown, c.id AS key, c.native_id, c.repository_id, t.state
FROM gitea_live_receipt l JOIN gitea_task t ON t.id = l.task_id
JOIN gitea_repository r ON r.id = t.repository_id
JOIN gitea_comment c ON c.id = t.id || ':status:running'
WHERE l.closed = 0 AND c.state IN ('confirmed', 'failed') AND r.instance_id = :instance_id
ORDER BY l.task_id LIMIT :limit;

-- name: show_live_receipt :run
UPDATE gitea_live_receipt SET shown = :shown, closed = :closed WHERE task_id = :task_id;
