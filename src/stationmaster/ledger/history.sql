-- Every query gives the same columns, those of `history.Entry`.

-- name: by_ref :many
-- A command's refs hold for its moves and events; an event may have refs of its own, so one row can be met twice.
SELECT c.seq, c.at, 'command' AS kind, c.name, c.seq AS command, c.name AS command_name, c.actor, c.cause,
  NULL AS machine, NULL AS entity, CAST(NULL AS BIGINT) AS rev, NULL AS from_state, NULL AS to_state,
  CAST(NULL AS BIGINT) AS intent, NULL AS outcome, NULL AS data
FROM ref r JOIN command c ON c.seq = r.seq
WHERE r.kind = :kind AND r.value = :value AND c.seq > :after
UNION
SELECT j.seq, c.at, 'move', j.verb, c.seq, c.name, c.actor, c.cause,
  j.machine, j.entity, j.rev, j.from_state, j.to_state, CAST(NULL AS BIGINT), NULL, NULL
FROM ref r JOIN journal j ON j.command = r.seq JOIN command c ON c.seq = r.seq
WHERE r.kind = :kind AND r.value = :value AND j.seq > :after
UNION
SELECT e.seq, e.at, e.kind, e.action, c.seq, c.name, c.actor, c.cause,
  NULL, NULL, CAST(NULL AS BIGINT), NULL, NULL, e.intent_seq, e.outcome, e.data
FROM ref r JOIN event e ON e.command = r.seq JOIN command c ON c.seq = r.seq
WHERE r.kind = :kind AND r.value = :value AND e.seq > :after
UNION
SELECT e.seq, e.at, e.kind, e.action, c.seq, c.name, c.actor, c.cause,
  NULL, NULL, CAST(NULL AS BIGINT), NULL, NULL, e.intent_seq, e.outcome, e.data
FROM ref r JOIN event e ON e.seq = r.seq JOIN command c ON c.seq = e.command
WHERE r.kind = :kind AND r.value = :value AND e.seq > :after
ORDER BY 1 LIMIT :limit;

-- name: page :many
SELECT c.seq, c.at, 'command' AS kind, c.name, c.seq AS command, c.name AS command_name, c.actor, c.cause,
  NULL AS machine, NULL AS entity, CAST(NULL AS BIGINT) AS rev, NULL AS from_state, NULL AS to_state,
  CAST(NULL AS BIGINT) AS intent, NULL AS outcome, NULL AS data
FROM command c WHERE c.seq > :after AND c.seq <= :below
UNION ALL
SELECT j.seq, c.at, 'move', j.verb, c.seq, c.name, c.actor, c.cause,
  j.machine, j.entity, j.rev, j.from_state, j.to_state, CAST(NULL AS BIGINT), NULL, NULL
FROM journal j JOIN command c ON c.seq = j.command WHERE j.seq > :after AND j.seq <= :below
UNION ALL
SELECT e.seq, e.at, e.kind, e.action, c.seq, c.name, c.actor, c.cause,
  NULL, NULL, CAST(NULL AS BIGINT), NULL, NULL, e.intent_seq, e.outcome, e.data
FROM event e JOIN command c ON c.seq = e.command WHERE e.seq > :after AND e.seq <= :below
ORDER BY 1 LIMIT :limit;

-- name: by_entity :many
SELECT j.seq, c.at, 'move' AS kind, j.verb AS name, c.seq AS command, c.name AS command_name, c.actor, c.cause,
  j.machine, j.entity, j.rev, j.from_state, j.to_state, NULL AS intent, NULL AS outcome, NULL AS data
FROM journal j JOIN command c ON c.seq = j.command
WHERE j.machine = :machine AND j.entity = :entity ORDER BY j.rev;

-- name: by_command :many
SELECT c.seq, c.at, 'command' AS kind, c.name, c.seq AS command, c.name AS command_name, c.actor, c.cause,
  NULL AS machine, NULL AS entity, CAST(NULL AS BIGINT) AS rev, NULL AS from_state, NULL AS to_state,
  CAST(NULL AS BIGINT) AS intent, NULL AS outcome, NULL AS data
FROM command c WHERE c.seq = :command
UNION ALL
SELECT j.seq, c.at, 'move', j.verb, c.seq, c.name, c.actor, c.cause,
  j.machine, j.entity, j.rev, j.from_state, j.to_state, CAST(NULL AS BIGINT), NULL, NULL
FROM journal j JOIN command c ON c.seq = j.command WHERE j.command = :command
UNION ALL
SELECT e.seq, e.at, e.kind, e.action, c.seq, c.name, c.actor, c.cause,
  NULL, NULL, CAST(NULL AS BIGINT), NULL, NULL, e.intent_seq, e.outcome, e.data
FROM event e JOIN command c ON c.seq = e.command WHERE e.command = :command
ORDER BY 1;

-- name: by_action :many
SELECT e.seq, e.at, e.kind, e.action AS name, c.seq AS command, c.name AS command_name, c.actor, c.cause,
  NULL AS machine, NULL AS entity, NULL AS rev, NULL AS from_state,
  NULL AS to_state, e.intent_seq AS intent, e.outcome, e.data
FROM event e JOIN command c ON c.seq = e.command
WHERE e.action = :action AND e.seq > :after ORDER BY e.seq LIMIT :limit;

-- name: by_seq :many
SELECT c.seq, c.at, 'command' AS kind, c.name, c.seq AS command, c.name AS command_name, c.actor, c.cause,
  NULL AS machine, NULL AS entity, CAST(NULL AS BIGINT) AS rev, NULL AS from_state, NULL AS to_state,
  CAST(NULL AS BIGINT) AS intent, NULL AS outcome, NULL AS data
FROM command c WHERE c.seq = :seq
UNION ALL
SELECT j.seq, c.at, 'move', j.verb, c.seq, c.name, c.actor, c.cause,
  j.machine, j.entity, j.rev, j.from_state, j.to_state, CAST(NULL AS BIGINT), NULL, NULL
FROM journal j JOIN command c ON c.seq = j.command WHERE j.seq = :seq
UNION ALL
SELECT e.seq, e.at, e.kind, e.action, c.seq, c.name, c.actor, c.cause,
  NULL, NULL, CAST(NULL AS BIGINT), NULL, NULL, e.intent_seq, e.outcome, e.data
FROM event e JOIN command c ON c.seq = e.command WHERE e.seq = :seq;

-- name: results :many
SELECT e.seq, e.at, e.kind, e.action AS name, c.seq AS command, c.name AS command_name, c.actor, c.cause,
  NULL AS machine, NULL AS entity, NULL AS rev, NULL AS from_state,
  NULL AS to_state, e.intent_seq AS intent, e.outcome, e.data
FROM event e JOIN command c ON c.seq = e.command
WHERE e.intent_seq = :intent ORDER BY e.seq;

-- name: refs :many
SELECT kind, value FROM ref WHERE seq = :seq ORDER BY kind, value;

-- name: open_all :many
SELECT o.seq, o.action, o.subject, o.command, o.at, e.data
FROM open_intent o JOIN event e ON e.seq = o.seq ORDER BY o.seq LIMIT :limit;

-- name: open_by_subject :many
SELECT o.seq, o.action, o.subject, o.command, o.at, e.data
FROM open_intent o JOIN event e ON e.seq = o.seq WHERE o.subject = :subject ORDER BY o.seq LIMIT :limit;

-- name: open_by_action :many
SELECT o.seq, o.action, o.subject, o.command, o.at, e.data
FROM open_intent o JOIN event e ON e.seq = o.seq WHERE o.action = :action ORDER BY o.seq LIMIT :limit;

-- name: horizon :one
SELECT max(seq) AS seq FROM (
  SELECT coalesce(max(seq), 0) AS seq FROM command
  UNION ALL SELECT coalesce(max(seq), 0) FROM journal
  UNION ALL SELECT coalesce(max(seq), 0) FROM event
) AS newest;

-- name: horizon :one [postgres]
-- While transactions run: the number that was the newest before some finished transaction began, one older than all
-- that run. What runs took its transaction id later, so all its numbers are higher.
-- Nothing runs when the oldest id that is not finished has not been given out yet: `age` counts up to the next id, of
-- which xmax knows nothing. It counts once a transaction, so only a whole-transaction snapshot may ask it.
SELECT CASE WHEN current_setting('transaction_isolation') = 'repeatable read'
    AND pg_current_xact_id_if_assigned() IS NULL AND age(CAST(pg_snapshot_xmin(s.now) AS XID)) = 0
  THEN greatest(
    (SELECT coalesce(max(seq), 0) FROM command),
    (SELECT coalesce(max(seq), 0) FROM journal),
    (SELECT coalesce(max(seq), 0) FROM event)
  )
  ELSE coalesce(
    (
      SELECT base FROM command WHERE tx < CAST(CAST(pg_snapshot_xmin(s.now) AS TEXT) AS BIGINT)
      ORDER BY seq DESC LIMIT 1
    ),
    0
  ) END AS seq
FROM (SELECT pg_current_snapshot() AS now) AS s;
