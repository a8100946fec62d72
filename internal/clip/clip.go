// Package clip shortens texts to a number of bytes, between characters.
package clip

import "unicode/utf8"

// ellipsis is what stands for the rest of a text.
const ellipsis = "…"

// Prefix returns the longest beginning of a text that has at most limit bytes and ends with
// a whole character.
func Prefix(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := max(limit, 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Text returns a text of at most limit bytes; what is left out is shown as "…".
func Text(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return Prefix(text, limit-len(ellipsis)) + ellipsis
}
