package deadcmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/confirm"
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
		Long: `Write dead events as lines of JSON, or with --discarded the events of the archive. Each
line has everything: body, headers, failures, for an edited event what it was before each
edit, and for a discarded event who discarded it and why.`,
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
					return store.Export(cmd.Context(), f, out, deadletter.ExportOptions{Progress: progress})
				})
				if err != nil || file == "" {
					return err
				}
				return output.Line(cmd.OutOrStdout(), "exported: %s", output.Plural(int(n), "event"))
			})
		},
	}
	cmd.Flags().StringVar(&file, "output", "", "file to write; it must not exist yet (default standard output)")
	argument.Conditions(cmd, "output")
	cmd.Flags().BoolVar(&w.f.Discarded, "discarded", false, "discarded events instead of dead ones; --since and --until then select by the time of the discard")
	w.addFlags(cmd)
	d.DB.AddURLFlag(cmd)
	return cmd
}

// writeTo creates a file and passes a writer for it to the function do. Each Flush of the writer
// also syncs the file to the disk. If name is empty, writeTo calls do with standard output.
func writeTo(cmd *cobra.Command, name string, do func(out io.Writer, progress func(int64)) (int64, error)) (int64, error) {
	bar := output.Bar(cmd.ErrOrStderr())
	defer bar.Clear()
	progress := func(n int64) { bar.Draw(fmt.Sprintf("%s events written", terminal.Grouped(n))) }
	if name == "" {
		return do(bufio.NewWriter(cmd.OutOrStdout()), progress)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return 0, fmt.Errorf("create the file: %w", err)
	}
	n, err := do(&syncWriter{file: file, Writer: bufio.NewWriter(file)}, progress)
	closing := file.Close()
	if err != nil && !errors.Is(err, deadletter.ErrUnknownOutcome) {
		return n, errors.Join(err, os.Remove(name)) // a person could take an incomplete file for a complete one
	}
	return n, errors.Join(err, closing) // keep the file, because it may be the only copy
}

// syncWriter is a buffered writer to a file. Flush also syncs the file to the disk.
type syncWriter struct {
	*bufio.Writer

	file *os.File
}

// Flush writes the buffer and waits until the file is on the disk.
func (s *syncWriter) Flush() error {
	return errors.Join(s.Writer.Flush(), s.file.Sync())
}

func newPurge(d *commands) *cobra.Command {
	var olderThan time.Duration
	var file string
	cmd := &cobra.Command{
		Use:   "purge --older-than DURATION --output FILE",
		Short: "Write old discarded events to a file, then remove them for good",
		Long: `Remove from the archive the events that were discarded long ago. The command first
writes them to a file, as 'postroom dead export --discarded' does, and removes them when
the file is on the disk. It also removes replays that ended before the same time, and
what edited events were before an edit, if they are no longer held. The file has that
too, in lines with id, event_id and revisions.
'postroom audit' still shows what was done. Dead events are never removed by age:
discard them, with a reason.`,
		Example: `  postroom dead purge --older-than 2160h --output archive-2026-01.jsonl --yes`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case olderThan == 0:
				return exit.Usagef("how old? Give --older-than, for instance 2160h")
			case file == "":
				return exit.Usagef("where to keep the events? Give --output, a file that does not exist yet")
			}
			before := time.Now().Add(-olderThan)
			return d.with(cmd.Context(), func(store *deadletter.Store) error { return purge(cmd, d, store, before, file) })
		},
	}
	cmd.Flags().DurationVar(&olderThan, "older-than", 0, "remove events that were discarded longer ago than this (required)")
	cmd.Flags().StringVar(&file, "output", "", "file to write; it must not exist yet (required)")
	command.NoFileCompletion(cmd, "older-than")
	argument.Positive(cmd, "older-than", &olderThan, "2160h")
	argument.Conditions(cmd, "output")
	d.AddAuditFlags(cmd)
	d.AddYes(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

// atLeast returns "20 events", or "20 or more events" if the parameter more is true.
func atLeast(n int64, more bool, noun string) string {
	if more {
		return terminal.Grouped(n) + " or more " + noun + "s"
	}
	return output.Plural(int(n), noun)
}

func purge(cmd *cobra.Command, d *commands, store *deadletter.Store, before time.Time, file string) error {
	ctx := cmd.Context()
	n, more, err := store.Count(ctx, deadletter.Filter{Discarded: true, Until: before})
	if err != nil {
		return err
	}
	if !d.Yes {
		if err := confirm.Ask(cmd, fmt.Sprintf("permanently remove %s that were discarded before %s?", atLeast(n, more, "event"), output.Stamp(before)), fmt.Sprintf("'postroom dead list --discarded --until %s'", output.Stamp(before))); err != nil {
			return err
		}
	}
	n, err = writeTo(cmd, file, func(out io.Writer, progress func(int64)) (int64, error) {
		return store.Purge(ctx, out, deadletter.PurgeOptions{Before: before, Progress: progress}, d.audit())
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
	return output.Line(cmd.OutOrStdout(), "purged: %s; the file %s contains them", output.Plural(int(n), "event"), output.Cell(file, 200))
}
