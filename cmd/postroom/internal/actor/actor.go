// Package actor finds the name of the person who runs a command.
package actor

import (
	"cmp"
	"os"
	"os/user"
)

// Name returns the name that the audit records. It is the first given name that is not empty. If
// all given names are empty, it is the name of the user and of the machine.
func Name(given ...string) string {
	if actor := cmp.Or(given...); actor != "" {
		return actor
	}
	name, host := "unknown user", "unknown host"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
