package worker_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rowfold/rowfold/internal/temporaltest"
)

// The SDK keeps a workflow that a cut-off worker could not answer for in its cache.
const cachedWorkflow = "go.temporal.io/sdk/internal.(*coroutineState).initialYield"

func TestMain(m *testing.M) { os.Exit(temporaltest.Main(m, goleak.IgnoreAnyFunction(cachedWorkflow))) }
