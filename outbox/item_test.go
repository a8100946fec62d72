package outbox_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/outbox"
)

//
func TestASequenceIsRevisionThenIndex(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		revision int64
		index    int
		want     outbox.Sequence
	}{
		{0, 0, "0000000000000000000"},
		{1, 0, "0000000000000001000"},
		{1, 12, "0000000000000001012"},
		{10, 999, "0000000000000010999"},
		{9_999_999_999_999_999, outbox.MaxIndex, "9999999999999999999"},
	} {
		sequence := outbox.SequenceOf(c.revision, c.index)
		require.Equal(t, c.want, sequence)
		require.Equal(t, c.revision, sequence.Revision())
	}
	require.Zero(t, outbox.Sequence("").Revision(), "the sequence before all")
}

// sequences compare bytewise, as the revisions and then the indexes do.
func FuzzSequenceOrder(f *testing.F) {
	f.Add(uint64(9), uint16(999), uint64(10), uint16(0))
	f.Add(uint64(7), uint16(9), uint64(7), uint16(10))
	f.Add(uint64(0), uint16(0), uint64(0), uint16(0))
	f.Fuzz(func(t *testing.T, revisionA uint64, indexA uint16, revisionB uint64, indexB uint16) {
		const revisions = 10_000_000_000_000_000
		ra, rb := int64(revisionA%revisions), int64(revisionB%revisions)
		ia, ib := int(indexA)%(outbox.MaxIndex+1), int(indexB)%(outbox.MaxIndex+1)
		a, b := outbox.SequenceOf(ra, ia), outbox.SequenceOf(rb, ib)
		require.Len(t, a, 19)
		require.Equal(t, ra, a.Revision())
		require.Equal(t, cmp.Or(cmp.Compare(ra, rb), cmp.Compare(ia, ib)), cmp.Compare(a, b))
	})
}

// FuzzRevisionOfAnyText: what a table holds is not ours to trust.
func FuzzRevisionOfAnyText(f *testing.F) {
	f.Add("0000000000000001000")
	f.Add("12")
	f.Add("")
	f.Add("ä\xff")
	f.Fuzz(func(t *testing.T, text string) {
		revision := outbox.Sequence(text).Revision()
		if len(text) >= 16 && strings.Trim(text[:16], "0123456789") == "" {
			require.Equal(t, text[:16], string(outbox.SequenceOf(revision, 0)[:16]))
		}
	})
}

//
func TestAnEffectIDNamesItsCause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row      outbox.Row
		source   string
		streamID event.ID
		version  int64
		index    int
		want     string
	}{
		{zrh, "flight", "LX1", 7, 0, "Board|ZRH|flight|LX1|7|0"},
		{zrh, "flight", "LX1", 7, 1, "Board|ZRH|flight|LX1|7|1"},
		{outbox.Row{Projection: "A|B", Key: "50%"}, "a", "x|y", 1, 2, "A%7CB|50%25|a|x%7Cy|1|2"},
		{outbox.Row{Projection: "Board", Key: "ZRH#2"}, "flight", "LX1#2026", 1, 0, "Board|ZRH#2|flight|LX1#2026|1|0"},
	} {
		require.Equal(t, c.want, outbox.EffectID(c.row, c.source, c.streamID, c.version, c.index))
	}
}

// two effects have the same id only when they have the same cause.
func TestEffectIDsAreInjective(t *testing.T) {
	t.Parallel()
	type cause struct {
		projection, key, source, streamID string
		version                           int64
		index                             int
	}
	idOf := func(c cause) string {
		return outbox.EffectID(outbox.Row{Projection: c.projection, Key: c.key}, c.source, event.ID(c.streamID), c.version, c.index)
	}
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOfN(rapid.RuneFrom([]rune("a|%27C1")), 0, 4, -1)
		draw := rapid.Custom(func(t *rapid.T) cause {
			return cause{
				part.Draw(t, "projection"), part.Draw(t, "key"), part.Draw(t, "source"), part.Draw(t, "stream id"),
				rapid.Int64Range(0, 12).Draw(t, "version"), rapid.IntRange(0, 12).Draw(t, "index"),
			}
		})
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		require.Equal(t, a == b, idOf(a) == idOf(b), "%q %q", idOf(a), idOf(b))
		require.Equal(t, 5, strings.Count(idOf(a), "|"), "it parses back")
	})
}

// an id does not depend on how often the fold was run, nor on the row's revision.
func FuzzEffectIDIsDeterministic(f *testing.F) {
	f.Add("Board", "ZRH", "flight", "LX1", int64(1), 0)
	f.Fuzz(func(t *testing.T, projection, key, source, streamID string, version int64, index int) {
		row := outbox.Row{Projection: projection, Key: key}
		id := outbox.EffectID(row, source, event.ID(streamID), version, index)
		require.Equal(t, id, outbox.EffectID(row, source, event.ID(streamID), version, index))
		parts := strings.Split(id, "|")
		require.Len(t, parts, 6)
		back := strings.NewReplacer("%7C", "|", "%25", "%")
		require.Equal(t, []string{projection, key, source, streamID},
			[]string{back.Replace(parts[0]), back.Replace(parts[1]), back.Replace(parts[2]), back.Replace(parts[3])})
	})
}

func TestARefIsTheItemWithItsClaimAsRead(t *testing.T) {
	t.Parallel()
	item := outbox.Item{Sequence: "1", ID: "a", Claim: outbox.Claim{Owner: outbox.Owner{Nonce: "n"}, Epoch: 4}}
	require.Equal(t, outbox.Ref{Sequence: "1", ID: "a", Epoch: 4, Nonce: "n"}, item.Ref())
	require.Equal(t, "Board/ZRH", zrh.String())
}

func TestADeferralWithoutAFailureIsZero(t *testing.T) {
	t.Parallel()
	require.True(t, outbox.Deferral{}.IsZero())
	require.False(t, outbox.Deferral{Attempts: 1}.IsZero())
	require.False(t, outbox.Deferral{Until: noon}.IsZero())
	require.False(t, outbox.Deferral{Parked: true}.IsZero())
}

// The JSON of a result is a contract: workflows and operators' tools read it.
func TestAResultIsReadableJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(outbox.Result{
		Delivered: 2, Revision: 7,
		Failed: &outbox.Failure{
			Sequence: "0000000000000007000", ID: "a", Type: "Mail", Stream: "Flight", StreamID: "LX1", Version: 3,
			Class: event.ClassRetry, Error: "nobody answers", Attempts: 3, NextDelay: time.Second,
		},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"delivered":2,"revision":7,"failed":{"sequence":"0000000000000007000","id":"a","type":"Mail",
		"stream":"Flight","streamId":"LX1","version":3,"class":"retry","error":"nobody answers","attempts":3,"nextDelay":1000000000}}`, string(text))
	text, err = json.Marshal(outbox.Result{Delivered: 2, Revision: 7, Empty: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"delivered":2,"revision":7,"empty":true}`, string(text))
}
