package clip_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/internal/clip"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 3, ""},
		{"short", 5, "short"},
		{"shorter", 6, "sho…"},
		{"Zürich", 5, "Z…"}, // the ü does not fit whole
		{"Zürich", 6, "Zü…"},
		{"🛬🛬🛬", 8, "🛬…"},
	} {
		got := clip.Text(c.text, c.limit)
		require.Equal(t, c.want, got, "%q at %d", c.text, c.limit)
		require.LessOrEqual(t, len(got), c.limit)
		require.True(t, utf8.ValidString(got))
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Zürich", clip.Prefix("Zürich", 7))
	require.Equal(t, "Zü", clip.Prefix("Zürich", 3))
	require.Equal(t, "Z", clip.Prefix("Zürich", 2))
	require.Empty(t, clip.Prefix("🛬", 3))
	require.Empty(t, clip.Prefix("Zürich", -1))
}
