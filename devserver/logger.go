package devserver

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// logger passes what Temporal logs at warn and above on to slog. What is below is the business of people who develop
// Temporal itself.
type logger struct {
	slog *slog.Logger

	// stopping is shared by all loggers of a server. While the services go down one after the other, those that are still
	// up warn about each one that is gone, which tells nobody anything.
	stopping *atomic.Bool
}

var (
	_ log.Logger     = (*logger)(nil)
	_ log.WithLogger = (*logger)(nil)
)

func newLogger(to *slog.Logger) *logger {
	return &logger{slog: to.With("component", "temporal"), stopping: new(atomic.Bool)}
}

func (l *logger) Debug(string, ...tag.Tag) {}

func (l *logger) Info(string, ...tag.Tag) {}

func (l *logger) Warn(msg string, tags ...tag.Tag) {
	if !l.stopping.Load() {
		l.log(slog.LevelWarn, msg, tags)
	}
}

func (l *logger) Error(msg string, tags ...tag.Tag) { l.log(slog.LevelError, msg, tags) }

// DPanic is for what should panic in Temporal's own development, and is an error elsewhere.
func (l *logger) DPanic(msg string, tags ...tag.Tag) { l.log(slog.LevelError, msg, tags) }

// Panic logs and panics: callers count on it not to return.
func (l *logger) Panic(msg string, tags ...tag.Tag) {
	l.log(slog.LevelError, msg, tags)
	panic(describe(msg, tags))
}

// Fatal logs and ends the process: callers count on it not to return. It goes to standard error as well, because a
// process that ends without a word, under the discarding logger, is no help to anybody.
func (l *logger) Fatal(msg string, tags ...tag.Tag) {
	l.log(slog.LevelError, msg, tags)
	fmt.Fprintln(os.Stderr, "temporal server: fatal: "+describe(msg, tags))
	os.Exit(1) //nolint:forbidigo // Temporal counts on it: it goes on with broken state where Fatal returns
}

// With returns a logger that adds the tags to every record.
func (l *logger) With(tags ...tag.Tag) log.Logger {
	args := make([]any, 0, len(tags))
	for _, t := range tags {
		args = append(args, slog.Any(t.Key(), t.Value()))
	}

	return &logger{slog: l.slog.With(args...), stopping: l.stopping}
}

func (l *logger) log(level slog.Level, msg string, tags []tag.Tag) {
	// Temporal's interface carries no context.
	ctx := context.Background()
	if !l.slog.Enabled(ctx, level) {
		return
	}

	attrs := make([]slog.Attr, 0, len(tags))
	for _, t := range tags {
		attrs = append(attrs, slog.Any(t.Key(), t.Value()))
	}

	l.slog.LogAttrs(ctx, level, msg, attrs...) //nolint:sloglint // the message is Temporal's
}

func describe(msg string, tags []tag.Tag) string {
	var text strings.Builder

	text.WriteString(msg)

	for _, t := range tags {
		fmt.Fprintf(&text, " %s=%v", t.Key(), t.Value())
	}

	return text.String()
}
