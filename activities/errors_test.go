package activities_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/rowfold/rowfold/activities"
	"github.com/rowfold/rowfold/event"
)

// classed is an error that knows its class.
type classed struct{ class event.Class }

func (e classed) Error() string      { return "an error that is " + string(e.class) }
func (e classed) Class() event.Class { return e.class }

// T-6: the retry policy follows from the class.
func TestFailure(t *testing.T) {
	t.Parallel()
	for class, retried := range map[event.Class]bool{
		event.ClassRetry: true, event.ClassStale: true, event.ClassThrottled: true, event.ClassUnknownOutcome: true,
		event.ClassPermanent: false, event.ClassFenced: false,
	} {
		failure := activities.Failure(fmt.Errorf("write a row: %w", classed{class}))
		requireClass(t, failure, class, retried)
		require.Equal(t, class, activities.ClassOf(failure))
		require.Equal(t, class, activities.ClassOf(fmt.Errorf("drain: %w", failure)))
		application, _ := errors.AsType[*temporal.ApplicationError](failure)
		require.Equal(t, "write a row: an error that is "+string(class), application.Message())
		if class == event.ClassThrottled {
			require.Equal(t, activities.ThrottledDelay, application.NextRetryDelay())
		} else {
			require.Zero(t, application.NextRetryDelay())
		}
	}
	requireClass(t, activities.Failure(errors.New("nobody classified it")), event.ClassRetry, true)
}

// What Temporal knows already stays as it is.
func TestFailure_known(t *testing.T) {
	t.Parallel()
	require.NoError(t, activities.Failure(nil))
	for _, err := range []error{
		temporal.NewNonRetryableApplicationError("no", "MyType", nil),
		temporal.NewCanceledError(),
		fmt.Errorf("read: %w", context.Canceled),
	} {
		require.Same(t, err, activities.Failure(err))
	}
}

// T-3: an error in a history is bounded, and stays text.
func TestFailure_bounded(t *testing.T) {
	t.Parallel()
	for shift := range 3 {
		failure := activities.Failure(errors.New(strings.Repeat("x", shift) + strings.Repeat("☂", 5000)))
		application, is := errors.AsType[*temporal.ApplicationError](failure)
		require.True(t, is)
		require.LessOrEqual(t, len(application.Message()), 1024)
		require.Greater(t, len(application.Message()), 1000)
		require.True(t, strings.HasSuffix(application.Message(), "☂…"))
		require.NotContains(t, application.Message(), "\ufffd")
	}
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	require.Empty(t, activities.ClassOf(nil))
	require.Equal(t, event.ClassRetry, activities.ClassOf(temporal.NewApplicationError("x", "MyType")))
	require.Equal(t, event.ClassPermanent, activities.ClassOf(temporal.NewNonRetryableApplicationError("x", "MyType", nil)))
	require.Equal(t, event.ClassRetry, activities.ClassOf(temporal.NewTimeoutError(0, nil)))
	require.Equal(t, event.ClassFenced, activities.ClassOf(classed{event.ClassFenced}))
	// A workflow's error wraps that of its activity.
	inner := activities.Failure(classed{event.ClassThrottled})
	require.Equal(t, event.ClassThrottled, activities.ClassOf(temporal.NewApplicationErrorWithCause("drain row", "wrapError", inner)))
	require.Equal(t, event.ClassPermanent, activities.ClassOf(temporal.NewNonRetryableApplicationError("x", "MyType", temporal.NewApplicationError("y", "Other"))))
}
