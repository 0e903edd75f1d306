// Package confirm asks a person whether to continue.
package confirm

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// Ask asks a person a question, and returns nil if the answer is yes. If there is no terminal, it
// returns an error that names --yes. The error also contains the text look, which names commands
// and flags that show the events.
func Ask(cmd *cobra.Command, question, look string) error {
	in := cmd.InOrStdin()
	if file, ok := in.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return exit.Usagef("%s There is no terminal to ask you: give --yes, or look first with %s", question, look)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && line == "" {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return exit.Todof("nothing was done")
	}
	return nil
}
