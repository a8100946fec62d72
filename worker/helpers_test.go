package worker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/event"
	"github.com/rowfold/rowfold/projection"
	"github.com/rowfold/rowfold/starter"
	"github.com/rowfold/rowfold/store/sqlite"
)

// tick is how often a condition is looked at.
const tick = 20 * time.Millisecond

func requireRefused(tb testing.TB, err error, kind string) {
	tb.Helper()
	var refused *starter.OrderRefused
	require.ErrorAs(tb, err, &refused)
	require.Equal(tb, kind, refused.Type)
}

func keywords(attributes temporal.SearchAttributes) map[string]string {
	words := map[string]string{}
	for key, value := range attributes.GetUntypedValues() {
		if word, is := value.(string); is {
			words[key.GetName()] = word
		}
	}
	return words
}

func batchOptions() projection.BatchOptions { return projection.BatchOptions{} }

func permanent() error { return event.Permanent(errors.New("no such address")) }

func sqliteConfig() sqlite.Config { return sqlite.Config{} }
