package outbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rowfold/rowfold/event"
)

// Row names one row of one projection, and with it one outbox.
type Row struct {
	Projection string `json:"projection"`
	Key        string `json:"row"` // the row key's text, see projection.Model.KeyText
}

// String implements fmt.Stringer.
func (r Row) String() string { return r.Projection + "/" + r.Key }

// Sequence orders the effects of a row: the revision of the write that committed it
// (16 digits), then its index in that write (3 digits). It compares bytewise.
type Sequence string

// MaxIndex is the highest index of an effect in one write.
const MaxIndex = 999

// SequenceOf returns the sequence of the index-th effect of the write that set the
// row's revision.
func SequenceOf(revision int64, index int) Sequence {
	return Sequence(fmt.Sprintf("%016d%03d", revision, index))
}

// Revision returns the revision of the write that committed the effect.
func (s Sequence) Revision() int64 {
	var revision int64
	for _, digit := range s[:min(len(s), 16)] {
		revision = revision*10 + int64(digit-'0')
	}
	return revision
}

// EffectID returns the deterministic id of the index-th effect of an event for a
// row: the same event gives the same ids on every retry and in every process. The
// parts are joined by '|'; a '|' or '%' inside a part is percent-escaped.
func EffectID(row Row, source string, streamID event.ID, version int64, index int) string {
	return strings.Join([]string{
		escapeID.Replace(row.Projection), escapeID.Replace(row.Key), escapeID.Replace(source),
		escapeID.Replace(string(streamID)), strconv.FormatInt(version, 10), strconv.Itoa(index),
	}, "|")
}

var escapeID = strings.NewReplacer("%", "%25", "|", "%7C")

// Item is one committed effect that waits for its delivery.
type Item struct {
	Row      Row      `json:"row"`
	Sequence Sequence `json:"sequence"`
	ID       string   `json:"id"` // deterministic, see [EffectID]

	Source   string   `json:"source"`   // the projection's source
	Stream   string   `json:"stream"`   // the stream that the source reads
	StreamID event.ID `json:"streamId"` // the event that caused the effect
	Version  int64    `json:"version"`
	Index    int      `json:"index"` // among the effects of that event

	Type          string          `json:"type"`
	SchemaVersion int             `json:"schemaVersion"`
	Payload       json.RawMessage `json:"payload"`
	EnqueuedAt    time.Time       `json:"enqueuedAt"`
	TraceParent   string          `json:"traceParent,omitempty"` // W3C trace context of the event

	Claim    Claim    `json:"claim"`    // the zero Claim = never claimed
	Deferral Deferral `json:"deferral"` // the zero Deferral = due now
}

// Ref returns what names this item, with its claim as read.
func (i Item) Ref() Ref {
	return Ref{Sequence: i.Sequence, ID: i.ID, Epoch: i.Claim.Epoch, Nonce: i.Claim.Nonce}
}

// Ref names one item of a row's outbox, with its claim as read. A write that
// depends on the claim is conditioned on both epoch and nonce.
type Ref struct {
	Sequence Sequence `json:"sequence"`
	ID       string   `json:"id"`
	Epoch    int64    `json:"epoch"`
	Nonce    string   `json:"nonce"`
}

// Deferral is what the last failed delivery left on the head of a queue, for those
// who look at the store without asking a workflow: the sweep above all.
type Deferral struct {
	Attempts int         `json:"attempts,omitempty"` // failed deliveries so far
	Until    time.Time   `json:"until,omitzero"`     // not due before
	Parked   bool        `json:"parked,omitempty"`   // waits for an operator
	Class    event.Class `json:"class,omitempty"`
	Error    string      `json:"error,omitempty"`
}

// IsZero reports whether no failed delivery is recorded.
func (d Deferral) IsZero() bool { return d.Attempts == 0 && d.Until.IsZero() && !d.Parked }
