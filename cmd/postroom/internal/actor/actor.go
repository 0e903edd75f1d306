// Package actor says who runs a command.
package actor

import (
	"cmp"
	"os"
	"os/user"
)

// Name returns the person that the audit names: the one that was given, or else the user and
// the machine.
func Name(given ...string) string {
	if actor := cmp.Or(given...); actor != "" {
		return actor
	}
	name, host := "somebody", "unknown host"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
