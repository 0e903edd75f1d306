package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	docs         = "../../docs"
	cliReference = docs + "/reference/cli.md"
)

// docs/reference/cli.md has the help texts of the commands. make api writes it.
func TestCLIReference(t *testing.T) {
	t.Parallel()
	var want strings.Builder
	_, common, _ := strings.Cut(rootHelp, "\n\n")
	want.WriteString("# Command line\n\nWhat each command prints with `--help`. `make api` writes this page.\n\n```\n" + common + "\n```\n")
	for _, cmd := range commands(newRoot(func(string) string { return "" })) {
		if !cmd.HasParent() || cmd.HasAvailableSubCommands() && len(flags(cmd)) == 0 {
			continue
		}
		describe(&want, cmd)
	}
	if os.Getenv("POSTROOM_UPDATE") == "1" {
		if err := os.WriteFile(cliReference, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(cliReference)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("%s differs from what the commands print: make api writes it", cliReference)
	}
}

func describe(w *strings.Builder, cmd *cobra.Command) {
	text := func(format string, args ...any) { fmt.Fprintf(w, format, args...) }
	usage := cmd.UseLine()
	for _, alias := range cmd.Aliases {
		usage += "\nalso:  " + cmd.Parent().CommandPath() + " " + alias
	}
	text("\n## %s\n\n```\n%s\n\nusage: %s\n```\n", cmd.CommandPath(), strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)), usage)
	if cmd.HasExample() {
		text("\nExamples:\n\n```\n%s\n```\n", strings.TrimRight(cmd.Example, "\n"))
	}
	if all := flags(cmd); len(all) > 0 {
		text("\n| flag | type | what it does |\n| --- | --- | --- |\n")
		for _, f := range all {
			kind, usage := pflag.UnquoteUsage(f)
			if f.Shorthand != "" {
				usage += "; short: `-" + f.Shorthand + "`"
			}
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" {
				usage += "; default `" + f.DefValue + "`"
			}
			text("| `--%s` | %s | %s |\n", f.Name, cmp.Or(kind, "switch"), strings.ReplaceAll(usage, "|", `\|`))
		}
	}
}

// commands returns a command and all commands below it. It leaves out the commands that cobra adds.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, child := range cmd.Commands() {
		if child.Name() != "help" && child.Name() != "completion" {
			all = append(all, commands(child)...)
		}
	}
	return all
}

func flags(cmd *cobra.Command) []*pflag.Flag {
	var all []*pflag.Flag
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			all = append(all, f)
		}
	})
	return all
}

// The program accepts each command line in the documentation.
func TestDocumentedCommandLines(t *testing.T) {
	t.Parallel()
	pages := []string{"../../README.md"}
	err := filepath.WalkDir(docs, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" && !strings.Contains(path, "/decisions/") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, command := range commandLines(line) {
				lines++
				if err := parse(command); err != nil {
					t.Errorf("%s:%d: postroom %s: %v", page, n+1, strings.Join(command, " "), err)
				}
			}
		}
	}
	if lines < 20 {
		t.Errorf("%d command lines were found in %d pages: the test looks for them in the wrong way", lines, len(pages))
	}
}

var (
	inBackticks = regexp.MustCompile("`postroom ([^`]+)`")
	behindWords = regexp.MustCompile(`\s+#.*|[|>;&].*|\\$|…`)
	quotedWords = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// commandLines returns the command lines in a line of Markdown, as words.
func commandLines(line string) [][]string {
	var found []string
	if command, ok := strings.CutPrefix(strings.TrimSpace(line), "postroom "); ok {
		found = append(found, command)
	}
	for _, m := range inBackticks.FindAllStringSubmatch(line, -1) {
		found = append(found, m[1])
	}
	var commands [][]string
	for _, command := range found {
		var words []string
		for _, word := range quotedWords.FindAllString(behindWords.ReplaceAllString(command, ""), -1) {
			words = append(words, strings.Trim(word, `'"`))
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
	}
	return commands
}

// parse parses a command line without running it.
func parse(words []string) error {
	root := newRoot(func(string) string { return "" })
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("no command %q", rest[0])
	}
	for _, word := range rest { // a sentence may name a flag without its value
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case !strings.HasPrefix(word, "-") || word == "-":
		case strings.HasPrefix(word, "--") && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil && name != "help":
			return fmt.Errorf("no flag --%s", name)
		case !strings.HasPrefix(word, "--") && cmd.Flags().ShorthandLookup(name) == nil && name != "h":
			return fmt.Errorf("no flag -%s", name)
		}
	}
	return nil
}
