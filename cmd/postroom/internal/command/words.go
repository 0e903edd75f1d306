package command

import (
	"strings"

	"github.com/spf13/cobra"
)

// The map elsewhere has words that people type and that are no commands, each with the command that
// does what they mean.
var elsewhere = map[string]string{
	"dead cancel":  "replay cancel",
	"dead replays": "replay list",
	"dead resume":  "replay resume",
	"dead retry":   "dead replay",
}

// below returns the words of a command line, without the name of the program: those of a command and
// one more.
func below(cmd *cobra.Command, word string) string {
	_, words, _ := strings.Cut(cmd.CommandPath()+" "+word, " ")
	return words
}
