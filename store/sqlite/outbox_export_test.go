package sqlite

// The statements whose plans are tested.
const (
	HeadItems      = headItems
	PendingRows    = pendingRows
	WhetherPending = whetherPending
)
