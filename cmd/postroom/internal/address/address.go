// Package address finds and checks URLs that flags and the environment give.
package address

import "strings"

// First returns the first value that is set, and its origin: the flag or an environment
// variable.
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

// Misplaced reports whether a URL has an '@' in another place than after user and
// password. Then a '/', '?', '#' or '@' in the password was read as its end, and a part of
// the password as the host.
func Misplaced(url string) bool {
	_, rest, ok := strings.Cut(url, "://")
	if !ok {
		return false // key=value pairs
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	at := strings.Count(rest, "@")
	return at > 1 || at == 1 && !strings.Contains(authority, "@")
}
