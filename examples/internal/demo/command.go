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

// Command returns a command without arguments. The caller adds the flags. The command first calls
// the function validate, which checks the flags. Then it calls the function run with two writers:
// out for the result, progress for the lines of a Story and for logs.
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

// Main runs a command, and then calls Exit. The first Ctrl-C ends the command's context, and Main
// prints the text closing, if it is not empty. The second Ctrl-C ends the process.
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

// Exit prints an error and ends the process: with status 3 if the run is undecided, otherwise with
// status 1. If err is nil, Exit returns.
func Exit(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(verdict.ExitStatus(err))
	}
}

// TimeoutFlag adds the flag --timeout, which limits the time of a run.
func TimeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 10*time.Minute, "give up after this time; the run is undecided then (exit status 3)")
}

// Between returns an error if the value of a flag is below least or above most.
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

// Positive returns an error if the value of a flag is not more than 0.
func Positive(flag string, value time.Duration) error {
	if value <= 0 {
		return fmt.Errorf("--%s is %s, want more than 0", flag, value)
	}
	return nil
}
