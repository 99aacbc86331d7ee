-- How far in the history each kind of payload was let go.
CREATE TABLE gitea_retention (
  name TEXT PRIMARY KEY,
  seq INT64 NOT NULL
);
