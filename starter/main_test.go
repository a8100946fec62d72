package starter_test

import (
	"os"
	"testing"

	"github.com/rowfold/rowfold/internal/temporaltest"
)

func TestMain(m *testing.M) { os.Exit(temporaltest.Main(m)) }
