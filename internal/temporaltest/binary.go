package temporaltest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

const (
	// binaryEnv names the environment variable that holds the path of the dev server's binary.
	binaryEnv = "ROWFOLD_DEVSERVER"

	// binaryPath is where `make engines` puts the binary, below the root of the repository.
	binaryPath = ".engines/bin/rowfold-dev"
)

// rootModule matches the go.mod of the root module and of no module nested in it.
const rootModule = `(?m)^module github\.com/rowfold/rowfold$`

// findBinary returns the path of the dev server's binary: what the environment says, else the one that `make engines`
// builds.
func findBinary() (string, error) {
	if path := os.Getenv(binaryEnv); path != "" {
		if err := checkBinary(path); err != nil {
			return "", fmt.Errorf("%s: %w; correct or unset it", binaryEnv, err)
		}

		return path, nil
	}

	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working folder: %w", err)
	}

	root, err := findRoot(dir)
	if err != nil {
		return "", fmt.Errorf("%w; set %s to the path of the binary", err, binaryEnv)
	}

	path := filepath.Join(root, filepath.FromSlash(binaryPath))
	if err := checkBinary(path); err != nil {
		return "", fmt.Errorf("the Temporal dev server is missing: %w; run make engines", err)
	}

	return path, nil
}

// findRoot walks up from dir to the root of the repository.
func findRoot(dir string) (string, error) {
	module := regexp.MustCompile(rootModule)

	for at := dir; ; {
		contents, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && module.Match(contents) {
			return at, nil
		}

		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("look for the module's root: %w", err)
		}

		parent := filepath.Dir(at)
		if parent == at {
			return "", fmt.Errorf("%s is in no folder of the module github.com/rowfold/rowfold", dir)
		}

		at = parent
	}
}

func checkBinary(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}

	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}

	return nil
}
