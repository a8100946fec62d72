package outbox

// BackoffBounds returns the range of the n-th wait: with half jitter from low to bound,
// with full jitter from 0 to bound.
func BackoffBounds(b Backoff, n int, rand func() float64) (full, half, bound int64) {
	return int64(b.full(n, rand)), int64(b.half(n, rand)), int64(b.Bound(n))
}
