-- Times are Unix microseconds in UTC, those of events milliseconds. Names that begin with rowfold_ are ours.

CREATE TABLE rowfold_events (
	position       INTEGER PRIMARY KEY AUTOINCREMENT, -- in the order of commits: one writer at a time
	stream         TEXT    NOT NULL,
	stream_id      TEXT    NOT NULL,
	version        INTEGER NOT NULL,
	bucket         INTEGER NOT NULL, -- hash of the stream id, 0 .. 1023, for partitions of a feed
	type           TEXT    NOT NULL,
	schema_version INTEGER NOT NULL,
	time           INTEGER NOT NULL,
	data           BLOB    NOT NULL,
	metadata       TEXT,
	UNIQUE (stream, stream_id, version)
) STRICT;

CREATE INDEX rowfold_events_feed ON rowfold_events (stream, position, bucket);

-- A command names an intention, not a stream: its id is used once in the whole store.
CREATE TABLE rowfold_commands (
	command_id    TEXT    NOT NULL PRIMARY KEY,
	stream        TEXT    NOT NULL,
	stream_id     TEXT    NOT NULL,
	first_version INTEGER NOT NULL,
	last_version  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The version of each instance, which a trim leaves alone.
CREATE TABLE rowfold_heads (
	stream    TEXT    NOT NULL,
	stream_id TEXT    NOT NULL,
	version   INTEGER NOT NULL,
	PRIMARY KEY (stream, stream_id)
) STRICT, WITHOUT ROWID;

-- What a trim removed, so that followers can tell "nothing there" from "gone".
CREATE TABLE rowfold_trims (
	stream   TEXT    NOT NULL PRIMARY KEY,
	position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The models that Prepare has seen, so that a drain finds a row's table by its projection.
CREATE TABLE rowfold_models (
	projection TEXT NOT NULL PRIMARY KEY,
	row_table  TEXT NOT NULL UNIQUE,
	model      TEXT NOT NULL -- JSON of projection.Model
) STRICT, WITHOUT ROWID;

CREATE TABLE rowfold_outbox (
	projection     TEXT    NOT NULL,
	row_key        TEXT    NOT NULL,
	sequence       TEXT    NOT NULL,
	id             TEXT    NOT NULL,
	source         TEXT    NOT NULL,
	stream         TEXT    NOT NULL,
	stream_id      TEXT    NOT NULL,
	version        INTEGER NOT NULL,
	effect_index   INTEGER NOT NULL,
	type           TEXT    NOT NULL,
	schema_version INTEGER NOT NULL,
	payload        BLOB    NOT NULL,
	enqueued_at    INTEGER NOT NULL,
	trace_parent   TEXT    NOT NULL,
	claim_epoch    INTEGER NOT NULL DEFAULT 0,
	claim_nonce    TEXT    NOT NULL DEFAULT '',
	claim_owner    TEXT, -- JSON of outbox.Owner; NULL = unclaimed
	deferral       TEXT, -- JSON of outbox.Deferral; NULL = due now
	PRIMARY KEY (projection, row_key, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE rowfold_decisions (
	projection TEXT NOT NULL,
	row_key    TEXT NOT NULL,
	sequence   TEXT NOT NULL,
	item       TEXT NOT NULL, -- JSON of outbox.Item, as it was in the outbox, without its payload
	payload    BLOB NOT NULL,
	decision   TEXT NOT NULL, -- JSON of outbox.Decision
	decided_at INTEGER NOT NULL, -- a row that begins again after a purge uses its sequences again
	PRIMARY KEY (projection, row_key, sequence, decided_at)
) STRICT, WITHOUT ROWID;

CREATE TABLE rowfold_parks (
	projection TEXT    NOT NULL,
	instance   TEXT    NOT NULL, -- the checkpoint key, <source>#<stream id>
	source     TEXT    NOT NULL,
	stream_id  TEXT    NOT NULL,
	stream     TEXT    NOT NULL,
	row_keys   TEXT    NOT NULL, -- JSON array
	reason     TEXT    NOT NULL,
	class      TEXT    NOT NULL,
	lowest     INTEGER NOT NULL, -- the lowest version that was not applied
	newest     INTEGER NOT NULL,
	parked_at  INTEGER NOT NULL,
	PRIMARY KEY (projection, instance)
) STRICT, WITHOUT ROWID;

CREATE TABLE rowfold_skips (
	projection TEXT    NOT NULL,
	instance   TEXT    NOT NULL,
	version    INTEGER NOT NULL,
	source     TEXT    NOT NULL,
	stream_id  TEXT    NOT NULL,
	who        TEXT    NOT NULL,
	why        TEXT    NOT NULL,
	decided_at INTEGER NOT NULL,
	PRIMARY KEY (projection, instance, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE rowfold_positions (
	consumer TEXT    NOT NULL,
	stream   TEXT    NOT NULL,
	shard    TEXT    NOT NULL,
	position TEXT    NOT NULL,
	done     INTEGER NOT NULL,
	saved_at INTEGER NOT NULL,
	PRIMARY KEY (consumer, stream, shard)
) STRICT, WITHOUT ROWID;
