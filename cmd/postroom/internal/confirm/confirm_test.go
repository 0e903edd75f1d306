package confirm

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// An interrupt ends the question, although no line comes.
func TestAnInterruptEndsTheQuestion(t *testing.T) {
	t.Parallel()
	in, typed := io.Pipe()
	defer time.AfterFunc(10*time.Second, func() { _ = typed.Close() }).Stop() // without the interrupt, the question ends here
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var todo *exit.TodoError
	if line, err := read(ctx, in); !errors.As(err, &todo) || !strings.Contains(err.Error(), "nothing was done") || line != "" {
		t.Errorf("read = %q, %v", line, err)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"yes\n", "yes"} { // the second one ends with the end of the input
		if line, err := read(t.Context(), strings.NewReader(text)); err != nil || strings.TrimSpace(line) != "yes" {
			t.Errorf("read of %q = %q, %v", text, line, err)
		}
	}
	if _, err := read(t.Context(), strings.NewReader("")); !errors.Is(err, io.EOF) {
		t.Errorf("read of nothing: %v", err)
	}
}
