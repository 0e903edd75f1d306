// Package operator has what commands need that change something in the database.
package operator

import (
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/actor"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/database"
)

// Operator is who changes something, in which database, and how.
type Operator struct {
	DB     database.Target
	Reason string
	JSON   bool
	Yes    bool // do not ask

	actor  string
	getenv func(string) string
}

// New returns an operator who has given no flags yet.
func New(getenv func(string) string) Operator {
	return Operator{DB: database.New(getenv), getenv: getenv}
}

// AddCommonFlags adds the flags that name the database, and the one for JSON.
func (o *Operator) AddCommonFlags(cmd *cobra.Command) {
	o.DB.AddSchemaFlag(cmd)
	o.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &o.JSON)
}

// AddAuditFlags adds the flags that say who does something, and why.
func (o *Operator) AddAuditFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.actor, "actor", "", "who does it (default the user and the machine; env POSTROOM_ACTOR)")
	cmd.Flags().StringVar(&o.Reason, "reason", "", "why; the audit keeps it")
	command.NoFileCompletion(cmd, "actor", "reason")
}

// AddYes adds the flag that stands for a yes.
func (o *Operator) AddYes(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
}

// Who is the person that the audit names.
func (o *Operator) Who() string { return actor.Name(o.actor, o.getenv("POSTROOM_ACTOR")) }
