package outbox

import (
	"context"
	"time"
)

// Backoff is an exponential policy: the n-th wait is at most Min doubled n-1 times,
// and never more than Max.
type Backoff struct {
	Min time.Duration // bound of the first wait; 0 = the default of the place where it is used
	Max time.Duration // bound of every wait; 0 = as Min
}

// Bound returns the longest n-th wait; n counts from 1.
func (b Backoff) Bound(n int) time.Duration {
	bound := b.Min
	for range n - 1 {
		if bound >= b.Max {
			break
		}
		bound *= 2
	}
	return min(bound, b.Max)
}

// full returns the n-th wait with full jitter, for callers that compete: anything
// between nothing and the bound.
func (b Backoff) full(n int, rand func() float64) time.Duration {
	return time.Duration(rand() * float64(b.Bound(n)))
}

// half returns the n-th wait with half jitter, for something that has to recover
// first: between half of the bound and the bound.
func (b Backoff) half(n int, rand func() float64) time.Duration {
	bound := b.Bound(n)
	return bound/2 + time.Duration(rand()*float64(bound-bound/2))
}

func (b Backoff) orDefault(low, high time.Duration) Backoff {
	if b.Min == 0 {
		b.Min = low
		if b.Max == 0 {
			b.Max = high
		}
	}
	b.Max = max(b.Min, b.Max)
	return b
}

// wait returns after the delay, or earlier with the cause when ctx ends.
func wait(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
