package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The whole path on a real Temporal server: recorded, followed, folded, delivered, and equal to the count over the
// raw file.
func TestDemoAddsUp(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	options := demoOptions{stackOptions: stackOptions{dir: t.TempDir()}, flights: 600, timeout: 3 * time.Minute}
	require.NoError(t, runDemo(t.Context(), options, &out), "%s", &out)
	require.Contains(t, out.String(), "The board adds up, airport by airport")
	require.NotContains(t, out.String(), "DIFFERENT")

	require.ErrorContains(t, runDemo(t.Context(), options, &out), "holds a demo already")
}

func TestDemoRefusesANegativeNumber(t *testing.T) {
	t.Parallel()

	err := runDemo(t.Context(), demoOptions{flights: -1}, new(bytes.Buffer))
	require.ErrorContains(t, err, "--flights")
}
