package workflows

// Type names of the workflows, as they stand in histories and in the UI's form.
const (
	TypeDrainRow        = "DrainRow"
	TypeSweepOutbox     = "SweepOutbox"
	TypeApplyBatch      = "ApplyBatch"
	TypeCatchUpInstance = "CatchUpInstance"
	TypeConsumeStream   = "ConsumeStream"
	TypeConsumeShard    = "ConsumeShard"
	TypePurgeTombstones = "PurgeTombstones"
)

// Names of signals, updates and queries.
const (
	// SignalWake tells a DrainRow that its row has pending effects. It has no data.
	SignalWake = "wake"
	// SignalControl tells a ConsumeShard to pause, resume or stop; its data is a [Control].
	SignalControl = "control"

	// UpdateRetry ends a wait, and takes a parked queue or instance up again; its data is
	// a [Retry]. DrainRow and CatchUpInstance have it.
	UpdateRetry = "retry"
	// UpdateSkip passes over the head of a queue (DrainRow, its data is a [Decision]) or
	// over one event (CatchUpInstance, a [SkipEvent]).
	UpdateSkip = "skip"
	// UpdatePark moves the head of a queue to the parked store; its data is a [Decision].
	UpdatePark = "park"
	// UpdatePause lets a consumer finish its page and wait; it has no data.
	UpdatePause = "pause"
	// UpdateResume ends a pause; it has no data.
	UpdateResume = "resume"
	// UpdateStop lets a consumer finish its page and complete; it has no data.
	UpdateStop = "stop"
	// UpdateAcceptGap lets a consumer go on behind a gap; its data is an [AcceptGap].
	UpdateAcceptGap = "acceptGap"

	// QueryState returns the state of a DrainRow ([DrainState]) or a CatchUpInstance
	// ([CatchUpState]).
	QueryState = "state"
	// QueryProgress returns the progress of a ConsumeStream ([StreamState]) or a
	// ConsumeShard ([ShardState]).
	QueryProgress = "progress"
)

// Search attributes, all of type Keyword, and the keys of memos. They can be read
// without a worker.
const (
	AttributeProjection = "RowfoldProjection"
	AttributeRow        = "RowfoldRow"
	AttributeState      = "RowfoldState"

	// MemoDigest is the digest of the input that a run was started with.
	MemoDigest = "rowfoldInputDigest"
	// MemoInput is the input that a run was started with.
	MemoInput = "rowfoldInput"
	// MemoState is a [StateMemo].
	MemoState = "rowfoldState"
)

// Values of [AttributeState].
const (
	StateDraining   = "draining"    // effects are being delivered
	StateRetrying   = "retrying"    // waits for its next attempt
	StateParked     = "parked"      // waits for an operator
	StateCatchingUp = "catching up" // a parked instance is being applied
	StateFollowing  = "following"   // a feed is being followed
	StatePaused     = "paused"      // an operator has paused it
	StateGap        = "gap"         // records are gone before they were read: waits for an operator
)

// ErrorInvalidInput is the type of the error of a workflow, an update or a start whose
// input is wrong. It is never retried, and names the field and the fix.
const ErrorInvalidInput = "InvalidInput"
