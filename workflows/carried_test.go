package workflows_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/workflows"
)

// T-4: the state that one run hands to the next, with the rest of the input, comes back from
// JSON as it was, whatever is in it.
func TestCarriedState(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(*testing.T){
		workflows.TypeConsumeStream:   carriedState[workflows.ConsumeStream],
		workflows.TypeConsumeShard:    carriedState[workflows.ConsumeShard],
		workflows.TypeCatchUpInstance: carriedState[workflows.CatchUpInstance],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t)
		})
	}
}

func carriedState[Input any](t *testing.T) {
	t.Helper()
	inputs := rapid.MakeCustom[Input](rapid.MakeConfig{Types: map[reflect.Type]*rapid.Generator[any]{
		reflect.TypeFor[time.Time](): rapid.Custom(func(rt *rapid.T) time.Time {
			return time.Unix(rapid.Int64Range(0, 4e9).Draw(rt, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(rt, "ns")).UTC()
		}).AsAny(),
	}})
	rapid.Check(t, func(rt *rapid.T) {
		before := inputs.Draw(rt, "input")
		withoutEmpty(reflect.ValueOf(&before).Elem())
		text, err := json.Marshal(before)
		require.NoError(rt, err)
		var after Input
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		require.NoError(rt, decoder.Decode(&after))
		withoutEmpty(reflect.ValueOf(&after).Elem())
		require.Equal(rt, before, after)
	})
}

// withoutEmpty turns empty slices and maps into none: JSON leaves both out.
func withoutEmpty(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			withoutEmpty(value.Elem())
		}
	case reflect.Slice, reflect.Map:
		if value.Len() == 0 {
			value.SetZero()
		}
		for i := 0; value.Kind() == reflect.Slice && i < value.Len(); i++ {
			withoutEmpty(value.Index(i))
		}
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for _, field := range value.Fields() {
			withoutEmpty(field)
		}
	}
}
