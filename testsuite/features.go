package testsuite

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Features are the respects in which stores differ. Each field is a row of the table of
// guarantees; its tag is the row's text.
type Features struct {
	// Store is the store's name: the head of its column.
	Store string

	// MaxEffects is how many effects one write takes; 0 = no limit. It is
	// projection.Limits.MaxEffects.
	MaxEffects int `guarantee:"Effects in one write"`
	// MaxWriteBytes is how many bytes one write takes, row and effects; 0 = no limit.
	// It is projection.Limits.MaxBytes.
	MaxWriteBytes int `guarantee:"Bytes in one write, row and effects"`
	// MaxRowBytes is how many bytes one row takes; 0 = no limit. A larger one is
	// refused with *projection.RowTooLarge before anything is sent. It is
	// projection.Limits.MaxRowBytes.
	MaxRowBytes int `guarantee:"Bytes in one row"`
	// MaxAppendEvents is how many events one append takes; 0 = no limit. More are
	// refused with *event.AppendTooLarge before anything is sent.
	MaxAppendEvents int `guarantee:"Events in one append"`
	// MaxAppendBytes is how many bytes one append takes; 0 = no limit. As above.
	MaxAppendBytes int `guarantee:"Bytes in one append"`

	// Feed says that the event store has a feed of its own, by partitions, that loses
	// no event whatever the order in which concurrent appends commit.
	Feed bool `guarantee:"Feed over the event store"`
	// SnapshotHead says that a look at an outbox is one snapshot of row and effects.
	// Elsewhere the revision is read first and newer effects are held back: the order is
	// the same, an effect is seen a little later.
	SnapshotHead bool `guarantee:"Row and outbox are read as one snapshot"`
	// ForeignColumns says that values in a row which the row type does not know survive
	// a write.
	ForeignColumns bool `guarantee:"Columns that the row type does not know survive"`
}

// GuaranteeTable renders what stores claim as a Markdown table: a row for each
// guarantee, a column for each store.
func GuaranteeTable(stores ...Features) string {
	var table strings.Builder
	table.WriteString("| Guarantee |")
	for _, store := range stores {
		fmt.Fprintf(&table, " %s |", store.Store)
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(stores)) + "\n")
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Features]()) {
		guarantee := field.Tag.Get("guarantee")
		if guarantee == "" {
			continue
		}
		fmt.Fprintf(&table, "| %s |", guarantee)
		for _, store := range stores {
			fmt.Fprintf(&table, " %s |", guaranteeText(reflect.ValueOf(store).FieldByIndex(field.Index)))
		}
		table.WriteString("\n")
	}
	return table.String()
}

func guaranteeText(value reflect.Value) string {
	switch {
	case value.Kind() == reflect.Bool && value.Bool():
		return "yes"
	case value.Kind() == reflect.Bool:
		return "no"
	case value.Int() == 0:
		return "no limit"
	default:
		return strconv.FormatInt(value.Int(), 10)
	}
}
