CREATE TABLE parcel (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq),
  address TEXT NOT NULL,
  tracking TEXT NOT NULL UNIQUE,
  carrier TEXT,
  attempts INT64 NOT NULL,
  berth TEXT UNIQUE
);
-- One parcel of an address travels at a time.
CREATE UNIQUE INDEX parcel_on_road ON parcel (address) WHERE state = 'travelling';

CREATE TABLE note (
  parcel TEXT NOT NULL,
  n INT64 NOT NULL,
  words TEXT NOT NULL,
  PRIMARY KEY (parcel, n)
);

CREATE TABLE label (
  parcel TEXT NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (parcel, name)
);
