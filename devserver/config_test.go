package devserver_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rowfold/rowfold/devserver"
)

func TestConfig_Validate(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()

	for name, test := range map[string]struct {
		config devserver.Config
		faults []string // empty: valid
	}{
		"zero": {},
		"everything set": {config: devserver.Config{
			Address: "::1", Port: 7233, UIPort: 8233, MetricsPort: 9233, Database: filepath.Join(folder, "dev.db"),
			Namespaces: []string{"a", "b"}, Retention: time.Hour, StartTimeout: time.Second,
			Settings: map[string]any{"limit.maxIDLength": 500, "history.rps": 100.0, "frontend.enableUpdateWorkflowExecution": false},
		}},
		"no UI, no metrics": {config: devserver.Config{UIPort: devserver.NoPort, MetricsPort: devserver.NoPort}},
		"all faults at once": {
			config: devserver.Config{
				Address: "localhost", Port: -1, UIPort: 70000, MetricsPort: -2,
				Database: filepath.Join(folder, "missing", "dev.db"), Retention: time.Minute, StartTimeout: -1,
				Namespaces: []string{"", "temporal-system", "a", "a"},
				Settings:   map[string]any{"no.such.key": 1, "limit.maxIDLength": "many", "history.rps": 1.5},
			},
			faults: []string{
				`Address "localhost" is not an IP address`,
				"Port -1 is not between 0 and 65535",
				"UIPort 70000 is not between -1 and 65535",
				"MetricsPort -2 is not between -1 and 65535",
				"its folder",
				"Namespaces[0] is empty",
				`Namespaces[1] is "temporal-system"`,
				`Namespaces[3] repeats "a"`,
				"Retention 1m0s is below",
				"StartTimeout -1ns is negative",
				`unregistered key "no.such.key"`,
				`key "limit.maxidlength" value many`,
				`key "history.rps" value 1.5`,
			},
		},
		"one port twice": {
			config: devserver.Config{Port: 7233, UIPort: 7233, MetricsPort: 7233},
			faults: []string{"Port and UIPort are both 7233", "Port and MetricsPort are both 7233", "UIPort and MetricsPort are both"},
		},
		"a folder as database": {
			config: devserver.Config{Database: folder},
			faults: []string{"is a folder"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := test.config.Validate()
			if len(test.faults) == 0 {
				require.NoError(t, err)
			}

			for _, fault := range test.faults {
				require.ErrorContains(t, err, fault)
			}
		})
	}
}
