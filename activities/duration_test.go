package activities_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rowfold/rowfold/activities"
)

// T-1: durations are text that people write, and arrive as they were.
func TestDuration(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		duration := activities.Duration(rapid.Int64().Draw(t, "duration"))
		text, err := json.Marshal(duration)
		require.NoError(t, err)
		var read activities.Duration
		require.NoError(t, json.Unmarshal(text, &read))
		require.Equal(t, duration, read)
	})
	text, err := json.Marshal(activities.Duration(90 * time.Second))
	require.NoError(t, err)
	require.JSONEq(t, `"1m30s"`, string(text))
}

func TestDuration_faults(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`30`, `"30"`, `"soon"`, `{}`, `true`} {
		var duration activities.Duration
		err := json.Unmarshal([]byte(text), &duration)
		require.ErrorContains(t, err, `is no duration: write a text such as "30s"`, text)
	}
	duration := activities.Duration(7)
	require.NoError(t, json.Unmarshal([]byte(`""`), &duration))
	require.Zero(t, duration)
	require.Equal(t, activities.Duration(time.Minute), duration.Or(time.Minute))
	require.Equal(t, activities.Duration(7), activities.Duration(7).Or(time.Minute))
}
