// Package caller has the flags that commands for operators share.
package caller

import (
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/actor"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/database"
)

// Caller says who runs a command on which database, and has the values of the common flags.
type Caller struct {
	DB     database.Target
	Reason string
	JSON   bool
	Yes    bool // the command does not ask

	actor  string
	getenv func(string) string
}

// New returns a Caller. The caller adds flags to its commands with the Add methods.
func New(getenv func(string) string) Caller {
	return Caller{DB: database.New(getenv), getenv: getenv}
}

// AddCommonFlags adds the flags that name the database and the schema, and the flag --json.
func (o *Caller) AddCommonFlags(cmd *cobra.Command) {
	o.DB.AddSchemaFlag(cmd)
	o.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &o.JSON)
}

// AddAuditFlags adds the flags that name the person and the reason.
func (o *Caller) AddAuditFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.actor, "actor", "", "your name for the audit (default the user and the machine; env POSTROOM_ACTOR)")
	cmd.Flags().StringVar(&o.Reason, "reason", "", "your reason; the audit keeps it")
	command.NoFileCompletion(cmd, "actor", "reason")
	argument.Check(cmd, "actor", "want at most 255 bytes", func() bool { return len(o.actor) <= 255 })
	argument.Check(cmd, "reason", "want at most 4096 bytes", func() bool { return len(o.Reason) <= 4096 })
	argument.Conditions(cmd, "actor")
}

// AddYes adds the flag --yes.
func (o *Caller) AddYes(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
}

// Who returns the name that the audit records.
func (o *Caller) Who() string { return actor.Name(o.actor, o.getenv("POSTROOM_ACTOR")) }
