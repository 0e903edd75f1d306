package jcs

// Number writes a double as RFC 8785 does.
func Number(f float64) string { return string(appendDouble(nil, f)) }
