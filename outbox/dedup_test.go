package outbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/outbox"
)

func deliveryOf(row outbox.Row, revision int64, index int) outbox.Delivery {
	return outbox.Delivery{Item: outbox.Item{Row: row, Sequence: outbox.SequenceOf(revision, index)}, Effect: mail{Number: int(revision)*10 + index}}
}

//
func TestDedupDropsRepeatsAndWhatIsOlder(t *testing.T) {
	t.Parallel()
	got := &recorder{}
	deliver := outbox.Dedup(outbox.NewRecentRows(10), got.deliver)
	gva := outbox.Row{Projection: "Board", Key: "GVA"}
	for _, delivery := range []outbox.Delivery{
		deliveryOf(zrh, 1, 0), deliveryOf(zrh, 1, 1), deliveryOf(zrh, 1, 1), // a crash before the delete
		deliveryOf(zrh, 9, 0), deliveryOf(zrh, 10, 0),
		deliveryOf(zrh, 9, 0),                        // the repeat of an overtaken drain, after a later effect
		deliveryOf(gva, 1, 0), deliveryOf(gva, 1, 0), // rows are independent
	} {
		require.NoError(t, deliver(t.Context(), delivery))
	}
	require.Equal(t, []int{10, 11, 90, 100, 10}, got.numbers())
}

//
func TestDedupRemembersOnlyWhatWasTaken(t *testing.T) {
	t.Parallel()
	got := &recorder{before: failing(1, errNobody)}
	deliver := outbox.Dedup(outbox.NewRecentRows(10), got.deliver)
	require.ErrorIs(t, deliver(t.Context(), deliveryOf(zrh, 1, 0)), errNobody)
	require.NoError(t, deliver(t.Context(), deliveryOf(zrh, 1, 0)))
	require.Equal(t, []int{10}, got.numbers())
}

// brokenMemory fails at reading, or at saving.
type brokenMemory struct {
	outbox.Memory

	last, save error
}

func (m *brokenMemory) Last(ctx context.Context, row outbox.Row) (outbox.Sequence, error) {
	if m.last != nil {
		return "", m.last
	}
	return m.Memory.Last(ctx, row)
}

func (m *brokenMemory) Save(ctx context.Context, row outbox.Row, sequence outbox.Sequence) error {
	if m.save != nil {
		return m.save
	}
	return m.Memory.Save(ctx, row, sequence)
}

func TestDedupFailsWithItsMemory(t *testing.T) {
	t.Parallel()
	got, memory := &recorder{}, &brokenMemory{Memory: outbox.NewRecentRows(1), last: errBroken}
	deliver := outbox.Dedup(memory, got.deliver)
	require.ErrorIs(t, deliver(t.Context(), deliveryOf(zrh, 1, 0)), errBroken)
	require.Empty(t, got.deliveries(), "without a memory nobody knows whether it is a repeat")
	memory.last, memory.save = nil, errBroken
	require.ErrorIs(t, deliver(t.Context(), deliveryOf(zrh, 1, 0)), errBroken)
	require.Len(t, got.deliveries(), 1)
	memory.save = nil
	require.NoError(t, deliver(t.Context(), deliveryOf(zrh, 1, 0)))
	require.Len(t, got.deliveries(), 2, "not remembered, so it is repeated")
}

// a consumer that accepts in its own transaction sees each effect once.
func TestAcceptSaysNewOnce(t *testing.T) {
	t.Parallel()
	memory := &brokenMemory{Memory: outbox.NewRecentRows(10)}
	accept := func(revision int64, index int) bool {
		isNew, err := outbox.Accept(t.Context(), memory, zrh, outbox.SequenceOf(revision, index))
		require.NoError(t, err)
		return isNew
	}
	require.True(t, accept(1, 0))
	require.False(t, accept(1, 0))
	require.True(t, accept(1, 1))
	require.True(t, accept(10, 0))
	require.False(t, accept(9, 999))

	memory.save = errBroken
	isNew, err := outbox.Accept(t.Context(), memory, zrh, outbox.SequenceOf(11, 0))
	require.ErrorIs(t, err, errBroken)
	require.False(t, isNew)
	memory.save = nil
	require.True(t, accept(11, 0), "what was rolled back is new again")
	memory.last = errBroken
	_, err = outbox.Accept(t.Context(), memory, zrh, outbox.SequenceOf(12, 0))
	require.ErrorIs(t, err, errBroken)
}

func TestRecentRowsForgetTheRowThatWasUsedTheLongestTimeAgo(t *testing.T) {
	t.Parallel()
	memory := outbox.NewRecentRows(2)
	row := func(key string) outbox.Row { return outbox.Row{Projection: "Board", Key: key} }
	last := func(key string) outbox.Sequence {
		sequence, err := memory.Last(t.Context(), row(key))
		require.NoError(t, err)
		return sequence
	}
	save := func(key string, sequence outbox.Sequence) {
		require.NoError(t, memory.Save(t.Context(), row(key), sequence))
	}
	save("A", "5")
	save("B", "5")
	save("A", "3")
	require.Equal(t, outbox.Sequence("5"), last("A"), "it never goes back")
	save("C", "1")
	require.Equal(t, 2, memory.Len())
	require.Empty(t, last("B"), "A was used since")
	require.Equal(t, outbox.Sequence("5"), last("A"))
	save("D", "1")
	require.Empty(t, last("C"), "a look is a use, too")
	require.Equal(t, outbox.Sequence("5"), last("A"))

	atLeastOne := outbox.NewRecentRows(-3)
	require.NoError(t, atLeastOne.Save(t.Context(), row("A"), "1"))
	require.NoError(t, atLeastOne.Save(t.Context(), row("B"), "1"))
	require.Equal(t, 1, atLeastOne.Len())
}

// whatever an at-least-once delivery with ordered first deliveries repeats, the
// consumer sees each effect once and in order.
func TestDedupMakesAnyRepetitionExactlyOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		got := &recorder{}
		deliver := outbox.Dedup(outbox.NewRecentRows(1), got.deliver)
		effects := rapid.IntRange(1, 20).Draw(rt, "effects")
		var want []int
		for n := range effects {
			want = append(want, n*10)
			require.NoError(rt, deliver(t.Context(), deliveryOf(zrh, int64(n), 0)))
			for range rapid.IntRange(0, 3).Draw(rt, "repeats") {
				repeated := rapid.IntRange(0, n).Draw(rt, "repeated")
				require.NoError(rt, deliver(t.Context(), deliveryOf(zrh, int64(repeated), 0)))
			}
		}
		require.Equal(rt, want, got.numbers())
	})
}
