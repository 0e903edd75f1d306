// Package confirm asks a person whether to continue.
package confirm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
)

// Ask asks a person a question, and returns nil if the answer is yes. If the program is interrupted
// before the person answers, Ask returns an error. If there is no terminal, it returns an error that
// names --yes, and --dry-run if the command has this flag. The text look, which may be empty, is
// another way to see the events first.
func Ask(cmd *cobra.Command, question, look string) error {
	in := cmd.InOrStdin()
	if file, ok := in.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		//guard:advice-names-flags-that-exist true
		if cmd.Flag("dry-run") != nil {
			look = strings.TrimSuffix("--dry-run or "+look, " or ")
		}
		return exit.Usagef("%s There is no terminal to ask you: give --yes, or look first with %s", question, look)
	}
	output.Report(cmd.ErrOrStderr(), "%s [y/N] ", question)
	line, err := read(cmd.Context(), in)
	if err != nil {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return exit.Todof("nothing was done")
	}
	return nil
}

// read returns the first line of in. If ctx ends before that, it returns an error. Its goroutine then
// still reads: the program ends soon.
func read(ctx context.Context, in io.Reader) (string, error) {
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		answers <- answer{line, err}
	}()
	select {
	//guard:an-interrupt-ends-a-question = <-context.Background().Done()
	case <-ctx.Done():
		return "", exit.Todof("interrupted: nothing was done")
	case a := <-answers:
		if a.err != nil && a.line == "" {
			return "", fmt.Errorf("read the answer: %w", a.err)
		}
		return a.line, nil
	}
}
