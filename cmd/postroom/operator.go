package main

import (
	"cmp"
	"os"
	"os/user"

	"github.com/spf13/cobra"
)

// operator is what commands share that change something in the database.
type operator struct {
	db            database
	actor, reason string
	asJSON, yes   bool
}

func newOperator(getenv func(string) string) operator { return operator{db: database{getenv: getenv}} }

// addAuditFlags adds the flags that say who does something, and why.
func (o *operator) addAuditFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.actor, "actor", "", "who does it (default the user and the machine; env POSTROOM_ACTOR)")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why; the audit keeps it")
	noFileCompletion(cmd, "actor", "reason")
}

// addYes adds the flag that stands for a yes.
func (o *operator) addYes(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
}

// who is the person that the audit names.
func (o *operator) who() string {
	if actor := cmp.Or(o.actor, o.db.getenv("POSTROOM_ACTOR")); actor != "" {
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
