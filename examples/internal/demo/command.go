package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/internal/verdict"
)

// Command returns a command without arguments. The caller adds flags, and validate checks them
// first. Run gets a writer for the result, and one for the story.
func Command(name, short string, validate func() error, run func(ctx context.Context, out, progress io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use:           name,
		Short:         short,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validate(); err != nil {
				return err
			}
			return run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}

// Main runs a command and ends the process. The first Ctrl-C ends the command's context, and
// prints closing. The next one ends the process.
func Main(cmd *cobra.Command, closing string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop()
		if closing != "" {
			fmt.Fprintf(os.Stderr, "\n%s (Ctrl-C again to end at once)\n", closing)
		}
	})
	Exit(cmd.Name(), cmd.ExecuteContext(ctx))
}

// Exit ends the process with status 1 if something is wrong, and with 3 if the run is
// undecided. It returns if there is no error.
func Exit(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(verdict.ExitStatus(err))
	}
}

// TimeoutFlag adds a flag that bounds a run.
func TimeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 10*time.Minute, "give up after this time; the run is undecided then (exit status 3)")
}

// Between returns an error if the value of a flag is not from least to most.
func Between(flag string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("--%s is %d, want %d to %d", flag, value, least, most)
	}
	return nil
}

// AtLeast returns an error if the value of a flag is less than least.
func AtLeast[T cmp.Ordered](flag string, value, least T) error {
	if value < least {
		return fmt.Errorf("--%s is %v, want %v or more", flag, value, least)
	}
	return nil
}

// Positive returns an error if the value of a flag is not more than none.
func Positive(flag string, value time.Duration) error {
	if value <= 0 {
		return fmt.Errorf("--%s is %s, want more than 0", flag, value)
	}
	return nil
}
