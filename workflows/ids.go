package workflows

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/rowfold/rowfold/internal/clip"
	"github.com/rowfold/rowfold/outbox"
	"github.com/rowfold/rowfold/projection"
)

// MaxID is the longest workflow id in bytes; longer ones are cut to a hash suffix.
const MaxID = 200

// RowNames says how row keys and stream ids appear in workflow ids, search attributes
// and summaries.
type RowNames string

const (
	// RowNamesPlain shows them as they are, escaped. It is the default.
	RowNamesPlain RowNames = "plain"
	// RowNamesHMAC shows a keyed hash, for keys that are personal data.
	RowNamesHMAC RowNames = "hmac"
)

// IDs makes workflow ids: deterministic, readable, and different for different things.
// An open run of an id is a lock on what the id names.
//
// An id is `<deployment>/<verb>/<projection>/<row key>`; '/', '%' and '~' inside a part
// are percent-escaped. Above [MaxID] bytes the end is replaced by '~' and a hash of the
// whole.
type IDs struct {
	// Deployment tells installations in one namespace apart. Required.
	Deployment string
	// RowNames defaults to [RowNamesPlain].
	RowNames RowNames
	// Key is the secret of [RowNamesHMAC], 16 bytes or more.
	Key []byte
}

// Validate reports all faults at once.
func (n IDs) Validate() error {
	var errs []error
	if n.Deployment == "" {
		errs = append(errs, errors.New("deployment is empty: name the installation, such as \"flights\""))
	}
	switch n.RowNames {
	case "", RowNamesPlain:
	case RowNamesHMAC:
		if len(n.Key) < 16 {
			errs = append(errs, fmt.Errorf("key has %d bytes: hmac row names need 16 or more", len(n.Key)))
		}
	default:
		errs = append(errs, fmt.Errorf("RowNames is %q: use %q or %q", n.RowNames, RowNamesPlain, RowNamesHMAC))
	}
	return errors.Join(errs...)
}

// DrainRow returns the id of a row's drain.
func (n IDs) DrainRow(row outbox.Row) string {
	return n.join("drain", row.Projection, n.RowName(row))
}

// CatchUpInstance returns the id of a parked instance's catch-up.
func (n IDs) CatchUpInstance(name string, instance projection.Instance) string {
	return n.join("catchup", name, instance.Source, n.InstanceName(name, instance))
}

// SweepOutbox returns the id of a projection's sweep.
func (n IDs) SweepOutbox(name string) string { return n.join("sweep", name) }

// PurgeTombstones returns the id of a projection's purge.
func (n IDs) PurgeTombstones(name string) string { return n.join("purge", name) }

// ApplyBatch returns the id of a batch by the digest of its input.
func (n IDs) ApplyBatch(digest string) string { return n.join("apply", digest) }

// ConsumeStream returns the id of a consumer of a feed.
func (n IDs) ConsumeStream(consumer, feed string) string { return n.join("consume", consumer, feed) }

// ShardID returns the id of the follower of a shard, below that of its consumer.
func ShardID(consumer, shard string) string { return shorten(consumer + "/" + EscapeID(shard)) }

// RowName returns the name under which a row appears to people.
func (n IDs) RowName(row outbox.Row) string { return n.name(row.Projection, row.Key) }

// InstanceName returns the name under which an instance appears to people.
func (n IDs) InstanceName(name string, instance projection.Instance) string {
	return n.name(name+"\x00"+instance.Source, string(instance.StreamID))
}

func (n IDs) name(scope, key string) string {
	if n.RowNames != RowNamesHMAC {
		return key
	}
	mac := hmac.New(sha256.New, n.Key)
	mac.Write([]byte(scope + "\x00" + key))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func (n IDs) join(parts ...string) string {
	escaped := append(make([]string, 0, 1+len(parts)), EscapeID(n.Deployment))
	for _, part := range parts {
		escaped = append(escaped, EscapeID(part))
	}
	return shorten(strings.Join(escaped, "/"))
}

// EscapeID returns a part of an id as it stands there.
func EscapeID(part string) string { return escapeID.Replace(part) }

var escapeID = strings.NewReplacer("%", "%25", "/", "%2F", "~", "%7E")

// shorten cuts an id above MaxID to a hash suffix. No part holds a '~', so a short id
// never looks like a cut one.
func shorten(id string) string {
	if len(id) <= MaxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	suffix := "~" + hex.EncodeToString(sum[:16])
	return clip.Prefix(id, MaxID-len(suffix)) + suffix
}
