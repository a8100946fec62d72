package projection

import "slices"

// Span is a range of versions, both ends inclusive.
type Span struct{ First, Last int64 }

// Versions is a set of versions, kept as sorted spans that do not touch. The zero
// value is the empty set.
type Versions []Span

// With returns the set with a span added.
func (v Versions) With(span Span) Versions {
	if span.Last < span.First {
		return v
	}
	merged := make(Versions, 0, len(v)+1)
	at := 0
	for ; at < len(v) && v[at].Last+1 < span.First; at++ {
		merged = append(merged, v[at])
	}
	for ; at < len(v) && v[at].First <= span.Last+1; at++ {
		span.First, span.Last = min(span.First, v[at].First), max(span.Last, v[at].Last)
	}
	return append(append(merged, span), v[at:]...)
}

// Has reports whether a version is in the set.
func (v Versions) Has(version int64) bool {
	_, found := slices.BinarySearchFunc(v, version, func(span Span, version int64) int {
		switch {
		case span.Last < version:
			return -1
		case span.First > version:
			return 1
		default:
			return 0
		}
	})
	return found
}

// Missing returns what lies between after and before, both exclusive, and is not in
// the set.
func (v Versions) Missing(after, before int64) []Span {
	var missing []Span
	next := after + 1
	for _, span := range v {
		if span.Last < next {
			continue
		}
		if span.First >= before {
			break
		}
		if span.First > next {
			missing = append(missing, Span{next, span.First - 1})
		}
		next = span.Last + 1
	}
	if next < before {
		missing = append(missing, Span{next, before - 1})
	}
	return missing
}
