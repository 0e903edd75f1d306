package deadcmd

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/deadletter"
)

// A purge writes a file first. If it then does nothing, it removes the file. If the outcome is
// unknown, it keeps the file, which may be the only copy.
func TestPurgeRemovesItsFileIfItDidNothing(t *testing.T) {
	t.Parallel()
	for _, why := range []error{nil, deadletter.ErrNoMatch, deadletter.ErrUnknownOutcome} {
		file := filepath.Join(t.TempDir(), "archive.jsonl")
		_, err := writeTo(&cobra.Command{}, file, func(out io.Writer, _ func(int64)) (int64, error) {
			_, err := io.WriteString(out, "line\n")
			return 1, errors.Join(err, out.(interface{ Flush() error }).Flush(), why)
		})
		if !errors.Is(err, why) {
			t.Errorf("%v: %v", why, err)
		}
		text, err := os.ReadFile(file)
		if kept := string(text) == "line\n"; kept == errors.Is(why, deadletter.ErrNoMatch) {
			t.Errorf("after %v the file has %q, %v", why, text, err)
		}
	}
}

// If a file is on the disk, and closing it fails, the purge keeps it.
func TestPurgeKeepsAFileThatItCannotClose(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "archive.jsonl")
	_, err := writeTo(&cobra.Command{}, file, func(out io.Writer, _ func(int64)) (int64, error) {
		s := out.(*syncWriter)
		_, err := s.WriteString("line\n")
		return 1, errors.Join(err, s.Flush(), s.file.Close())
	})
	if err == nil {
		t.Error("no error of the second close")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "line\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
