package command

import (
	"strings"

	"github.com/spf13/cobra"
)

// Aliases has commands, and other words that run them.
var Aliases = map[string][]string{
	"events":            {"event"},
	"handlers":          {"handler"},
	"keys":              {"key"},
	"tables":            {"table"},
	"webhook endpoints": {"endpoint", "list"},
}

// Elsewhere has words that people type and that are no commands, each with the command that does what
// they mean.
var Elsewhere = map[string]string{
	"dead cancel":  "replay cancel",
	"dead replays": "replay list",
	"dead resume":  "replay resume",
	"dead retry":   "dead replay",
	"held show":    "dead show",
	"relay list":   "status",
	"relay status": "status",
	"replays":      "replay list",
	"stream info":  "stream check",
	"stream list":  "stream check",
	"stream ls":    "stream check",
}

// AddAliases gives the commands below root their aliases.
func AddAliases(root *cobra.Command) {
	for line, words := range Aliases {
		cmd, _, err := root.Find(strings.Fields(line))
		if err != nil {
			panic(err) // the line names no command
		}
		cmd.Aliases = words
	}
}

// below returns the words of a command line, without the name of the program: those of a command and
// one more.
func below(cmd *cobra.Command, word string) string {
	_, words, _ := strings.Cut(cmd.CommandPath()+" "+word, " ")
	return words
}
