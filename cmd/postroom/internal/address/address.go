// Package address finds and checks URLs that come from flags or the environment.
package address

import "strings"

// First returns the first value that is not empty, and its origin: the flag or the name of an
// environment variable.
func First(getenv func(string) string, value, flag string, variables ...string) (set, origin string) {
	if value != "" {
		return value, flag
	}
	for _, name := range variables {
		if v := getenv(name); v != "" {
			return v, name
		}
	}
	return "", ""
}

// Misplaced reports whether a URL has an '@' other than the one after its user and password.
// Usually such a URL has a password with an unescaped '/', '?', '#' or '@'. A parser would take a
// part of this password for the host.
func Misplaced(url string) bool {
	_, rest, ok := strings.Cut(url, "://")
	if !ok {
		return false // not a URL, but key=value pairs
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	at := strings.Count(rest, "@")
	return at > 1 || at == 1 && !strings.Contains(authority, "@")
}
