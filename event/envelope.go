package event

import (
	"encoding/json"
	"time"
)

// Envelope is an event as stores and feeds carry it: everything about it, and its
// payload as bytes.
type Envelope struct {
	Stream        string            `json:"stream"`
	StreamID      ID                `json:"streamId"`
	Version       int64             `json:"version"` // 1, 2, 3 … without holes inside one stream id
	Type          string            `json:"type"`
	SchemaVersion int               `json:"schemaVersion"`
	Time          time.Time         `json:"time"` // UTC, to the millisecond
	Metadata      map[string]string `json:"metadata,omitempty"`
	Payload       json.RawMessage   `json:"payload"`
}

// Event is a decoded event of a stream whose events are of type E.
type Event[E any] struct {
	Envelope

	Data E // the payload, in its newest shape
}

// NewEvent is an event that has no version yet. It is made by [Stream.Encode].
type NewEvent struct {
	Type          string
	SchemaVersion int
	Time          time.Time // zero = the store's clock at the append
	Metadata      map[string]string
	Payload       json.RawMessage
}
