package testsuite

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/projection"
)

// zeroKinds are the values of a row of kindsModel with nothing in it.
func zeroKinds(tenant string, number int64) []any {
	values := []any{tenant, number}
	for _, kind := range allKinds() {
		values = append(values, samples(kind)[0], nil)
	}
	return values
}

// samples are values that stores have been seen to change. The first is harmless.
func samples(kind projection.Kind) []any {
	switch kind {
	case projection.KindText:
		return []any{
			"", "plain", "Zürich 🛬 日本語", "quote ' \" \\ ` ; --", " spaces \t\n\r ", "%_#", "NULL", "0012", "1e5",
			"e\u0301 is not \u00e9", strings.Repeat("long ", 2000),
		}
	case projection.KindInt:
		return []any{int64(0), int64(1), int64(-1), int64(math.MaxInt64), int64(math.MinInt64), int64(1<<53 + 1), int64(-(1<<53 + 1))}
	case projection.KindFloat:
		return []any{
			float64(0), 1.0, -1.5, 0.1, 1.0 / 3, 1e21, 123456789012345680.0,
			math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, math.Nextafter(1, 2), float64(1 << 53),
		}
	case projection.KindBool:
		return []any{false, true}
	case projection.KindTime:
		return []any{
			noon, time.Date(2026, 12, 31, 23, 59, 59, 999_999_000, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 1_000, time.UTC),
			time.Date(1969, 12, 31, 23, 59, 59, 500_000_000, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), time.Unix(0, 0).UTC(),
		}
	case projection.KindBytes:
		return []any{[]byte{1}, []byte{}, []byte{0}, []byte("text"), []byte{0xff, 0xfe, 0x00, 0x80}, []byte(strings.Repeat("\x00\xff", 3000))}
	case projection.KindJSON:
		return []any{
			json.RawMessage(`{}`), json.RawMessage(`null`), json.RawMessage(`"text ü \u0001"`), json.RawMessage(`[1,2.5,true,null]`),
			json.RawMessage(`{"b":1,"a":{"c":[{}]},"":0,"ü🛫":"x"}`), json.RawMessage(`9007199254740991`), json.RawMessage(`false`),
		}
	default:
		return nil
	}
}

// projection.Kind: every sample goes through a required and a nullable column and comes back
// equal, in the Go type of its kind.
func valuesRoundTrip(t *testing.T, b Backend) {
	model := prepare(t, b, kindsModel())
	number := int64(0)
	for i, column := range model.Columns {
		if column.Key {
			continue
		}
		candidates := samples(column.Kind)
		if column.Nullable {
			candidates = append(candidates, nil)
		}
		for _, sample := range candidates {
			number++
			values := zeroKinds("t", number)
			values[i] = sample
			key, err := model.KeyText(model.KeyValues(values))
			require.NoError(t, err)
			commit(t, b, model, firstWrite(key, values))
			sameValues(t, model, values, load(t, b, model, key).Values)
		}
	}
	rows, err := b.Store.Rows(t.Context(), model, projection.RowPage{Limit: int(number) + 1})
	require.NoError(t, err)
	require.Len(t, rows, int(number), "listing reads what loading reads")
}

func sameValues(t testing.TB, model *projection.Model, want, got []any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, column := range model.Columns {
		require.IsType(t, want[i], got[i], "column %s of %v", column.Name, want[i])
		if raw, isJSON := want[i].(json.RawMessage); isJSON {
			stored, _ := got[i].(json.RawMessage)
			require.JSONEq(t, string(raw), string(stored), "column %s", column.Name)
			continue
		}
		require.Equal(t, want[i], got[i], "column %s", column.Name)
	}
}
