// Package command has the parts that commands share: groups, common flags, checks of arguments, and
// completion in the shell.
package command

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// Group returns a command that does nothing itself and contains other commands.
func Group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  Subcommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit.Usagef("say what to do: %s", strings.Join(childNames(cmd), ", "))
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

func childNames(cmd *cobra.Command) []string {
	var names []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	return names
}

// The pattern word matches an argument that an error may quote. An error quotes no other argument,
// because a person may have typed a URL with a password in its place.
var word = regexp.MustCompile(`^[a-z][a-z-]{0,20}$`)

// Subcommands refuses every argument of a command that has subcommands: if the argument named a
// subcommand, cobra would have run the subcommand instead. The error suggests a subcommand.
func Subcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !word.MatchString(args[0]) {
		return exit.Usagef("no such command; use one of: %s", strings.Join(childNames(cmd), ", "))
	}
	if meant, known := Elsewhere[below(cmd, args[0])]; known {
		return exit.Usagef("unknown command %q; use 'postroom %s'", args[0], meant)
	}
	cmd.SuggestionsMinimumDistance = 2 // cobra's default, which cobra sets only in code that does not run here
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return exit.Usagef("unknown command %q; did you mean %q?", args[0], near[0])
	}
	return exit.Usagef("unknown command %q; say what to do: %s", args[0], strings.Join(childNames(cmd), ", "))
}

// NoArguments is cobra.NoArgs with an error that does not contain the argument.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usagef("'%s' takes flags only, no arguments", cmd.CommandPath())
	}
	return nil
}

// Listing is for a command that lists what its name says: it accepts the word list, which other
// commands have, and no other argument.
func Listing(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "list":
		return nil
	case cmd.HasSubCommands():
		return Subcommands(cmd, args)
	}
	return NoArguments(cmd, args)
}

// NoFileCompletion stops the shell from completing file names for these flags.
func NoFileCompletion(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions); err != nil {
			panic(err) // the flag was not added
		}
	}
}

// CompleteWords makes the shell complete these words for a flag.
func CompleteWords(cmd *cobra.Command, flag string, words []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was not added
	}
}

// AddJSON adds the flag --json, for scripts.
func AddJSON(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON, for scripts")
}
