package temporaltest //nolint:testpackage // the search for the binary has no exported face that returns its errors

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindRoot(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	nested := filepath.Join(root, "devserver", "cmd")
	require.NoError(t, os.MkdirAll(nested, 0o750))
	writeFile(t, filepath.Join(root, "go.mod"), "module github.com/rowfold/rowfold\n\ngo 1.26.0\n", 0o600)
	writeFile(t, filepath.Join(root, "devserver", "go.mod"), "module github.com/rowfold/rowfold/devserver\n", 0o600)

	found, err := findRoot(nested)
	require.NoError(t, err)
	require.Equal(t, root, found)

	_, err = findRoot(t.TempDir())
	require.ErrorContains(t, err, "is in no folder of the module")
}

func TestFindBinary_saysWhatToDo(t *testing.T) {
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "go.mod"), "module github.com/rowfold/rowfold\n", 0o600)
	t.Chdir(root)
	t.Setenv(binaryEnv, "")

	_, err := findBinary()
	require.ErrorContains(t, err, "run make engines")
	require.ErrorIs(t, err, os.ErrNotExist)

	binary := filepath.Join(root, "other")
	t.Setenv(binaryEnv, binary)

	_, err = findBinary()
	require.ErrorContains(t, err, binaryEnv)

	writeFile(t, binary, "#!/bin/sh\n", 0o600)

	_, err = findBinary()
	require.ErrorContains(t, err, "is not an executable file")

	require.NoError(t, os.Chmod(binary, 0o700))

	found, err := findBinary()
	require.NoError(t, err)
	require.Equal(t, binary, found)
}

func TestStartChild_showsTheLogOfAServerThatEnds(t *testing.T) {
	t.Parallel()

	binary := filepath.Join(t.TempDir(), "broken")
	writeFile(t, binary, "#!/bin/sh\necho 'the disk is full' >&2\nexit 1\n", 0o700)

	_, err := startChild(binary, Options{})
	require.ErrorContains(t, err, "it has ended")
	require.ErrorContains(t, err, "the disk is full")
}

func writeFile(t *testing.T, path, contents string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(contents), mode))
}
