package deadcmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/terminal"
)

func newExport(d *commands) *cobra.Command {
	var w filterFlags
	var file string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write dead events as lines of JSON",
		Long: `Write dead events, or with --discarded those in the archive, as lines of JSON, whole:
body, headers, failures, and of discarded ones who discarded them and why.`,
		Example: `  postroom dead export --handler billing.charge > dead.jsonl
  postroom dead export --discarded --output archive.jsonl`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := w.filter(nil)
			if err != nil {
				return err
			}
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				n, err := writeTo(cmd, file, func(out io.Writer, progress func(int64)) (int64, error) {
					return store.Export(cmd.Context(), f, out, progress)
				})
				if err != nil || file == "" {
					return err
				}
				return output.Line(cmd.OutOrStdout(), "exported: %s", output.Plural(int(n), "event"))
			})
		},
	}
	cmd.Flags().StringVar(&file, "output", "", "file to write, which must not exist (default standard output)")
	cmd.Flags().BoolVar(&w.f.Discarded, "discarded", false, "discarded events, not dead ones")
	w.addFlags(cmd)
	d.DB.AddURLFlag(cmd)
	return cmd
}

// writeTo lets do write to a new file, and syncs it to the disk. If name is empty, do writes
// to standard output.
func writeTo(cmd *cobra.Command, name string, do func(out io.Writer, progress func(int64)) (int64, error)) (int64, error) {
	bar := output.Bar(cmd.ErrOrStderr())
	defer bar.Clear()
	progress := func(n int64) { bar.Draw(fmt.Sprintf("%s events written", terminal.Grouped(n))) }
	if name == "" {
		return do(bufio.NewWriter(cmd.OutOrStdout()), progress)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return 0, fmt.Errorf("create the file: %w", err)
	}
	n, err := do(&syncWriter{file: file, Writer: bufio.NewWriter(file)}, progress)
	closing := file.Close()
	if err != nil && !errors.Is(err, deadletter.ErrUnknownOutcome) {
		return n, errors.Join(err, os.Remove(name)) // a part of the file could be taken for all of it
	}
	return n, errors.Join(err, closing) // keep the file: it may be the only copy
}

// syncWriter syncs the file to the disk when it is flushed.
type syncWriter struct {
	*bufio.Writer

	file *os.File
}

// Flush writes the buffer, and waits until the file is on the disk.
func (s *syncWriter) Flush() error {
	return errors.Join(s.Writer.Flush(), s.file.Sync())
}

func newPurge(d *commands) *cobra.Command {
	var olderThan time.Duration
	var file string
	cmd := &cobra.Command{
		Use:   "purge --older-than DURATION --output FILE",
		Short: "Remove discarded events for good, after writing them to a file",
		Long: `Remove events from the archive that were discarded long ago. They are written to a file
first, as 'postroom dead export --discarded' writes them; nothing is removed before the
file is on the disk. Replays that ended as long ago go with them; what was done stays in
'postroom audit'. Dead events are never removed by age: discard them, for a reason.`,
		Example: `  postroom dead purge --older-than 2160h --output archive-2026-01.jsonl --yes`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case olderThan <= 0:
				return exit.Usagef("how old? Give --older-than, for instance 2160h")
			case file == "":
				return exit.Usagef("where are they to be kept? Give --output, a file that does not exist yet")
			}
			before := time.Now().Add(-olderThan)
			return d.with(cmd.Context(), func(store *deadletter.Store) error { return purge(cmd, d, store, before, file) })
		},
	}
	cmd.Flags().DurationVar(&olderThan, "older-than", 0, "discarded longer ago than this (required)")
	cmd.Flags().StringVar(&file, "output", "", "file to write, which must not exist (required)")
	command.NoFileCompletion(cmd, "older-than")
	d.AddAuditFlags(cmd)
	d.AddYes(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

func purge(cmd *cobra.Command, d *commands, store *deadletter.Store, before time.Time, file string) error {
	ctx := cmd.Context()
	n, more, err := store.Count(ctx, deadletter.Filter{Discarded: true, Until: before})
	if err != nil {
		return err
	}
	if !d.Yes {
		if err := ask(cmd, fmt.Sprintf("remove %s for good that were discarded before %s?", atLeast(n, more, "event"), output.Stamp(before))); err != nil {
			return err
		}
	}
	n, err = writeTo(cmd, file, func(out io.Writer, progress func(int64)) (int64, error) {
		return store.Purge(ctx, before, out, d.audit(), progress)
	})
	if errors.Is(err, deadletter.ErrNoMatch) {
		return fmt.Errorf("nothing was discarded, and no replay ended, before %s", output.Stamp(before))
	}
	if err != nil {
		return err
	}
	if d.JSON {
		return output.JSON(cmd.OutOrStdout(), changeResult{n})
	}
	return output.Line(cmd.OutOrStdout(), "purged: %s, kept in %s", output.Plural(int(n), "event"), output.Cell(file, 200))
}
