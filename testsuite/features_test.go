package testsuite_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/testsuite"
)

func TestGuaranteeTable(t *testing.T) {
	t.Parallel()
	table := testsuite.GuaranteeTable(
		testsuite.Features{Store: "One", Feed: true, MaxEffects: 99},
		testsuite.Features{Store: "Two", MaxRowBytes: 409600},
	)
	require.Equal(t, `| Guarantee | One | Two |
|---|---|---|
| Effects in one write | 99 | no limit |
| Bytes in one write, row and effects | no limit | no limit |
| Bytes in one row | no limit | 409600 |
| Events in one append | no limit | no limit |
| Bytes in one append | no limit | no limit |
| Feed over the event store | yes | no |
| Row and outbox are read as one snapshot | no | no |
| Columns that the row type does not know survive | no | no |
`, table)
}

// A feature that is no row of the table would be claimed to nobody.
func TestEveryFeatureIsAGuarantee(t *testing.T) {
	t.Parallel()
	table := testsuite.GuaranteeTable(testsuite.Features{Store: "One"})
	for _, field := range reflect.VisibleFields(reflect.TypeFor[testsuite.Features]()) {
		if field.Name == "Store" {
			continue
		}
		text := field.Tag.Get("guarantee")
		require.NotEmpty(t, text, field.Name)
		require.Equal(t, 1, strings.Count(table, "| "+text+" |"), field.Name)
	}
}
