//go:build linux || darwin

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/integration/checker"
)

const journals = ".jsonl"

// journal is where a process notes what it does, a line each, and what came of it.
// It is a file of the process's own, so that no fault of a server reaches it: what
// was written stays, however the process ends.
type journal struct {
	process string

	mu   sync.Mutex
	file *os.File
}

// openJournal opens one for this life of a process.
func openJournal(dir, process string) (*journal, error) {
	name := journalName(dir, process, os.Getpid())
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &journal{process: process, file: file}, nil
}

// note writes a record. A process that cannot is of no use to a run: it ends.
func (j *journal) note(r checker.Record) {
	r.At, r.Process, r.Life = time.Now(), j.process, os.Getpid()
	line, err := json.Marshal(r)
	if err == nil {
		j.mu.Lock()
		_, err = j.file.Write(append(line, '\n'))
		j.mu.Unlock()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: write journal:", err)
		os.Exit(1)
	}
}

func (j *journal) close() error { return j.file.Close() }

// readHistory returns what all processes noted, by its time.
func readHistory(dir string) ([]checker.Record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+journals))
	if err != nil {
		return nil, err
	}
	var all []checker.Record
	var errs []error
	for _, name := range files {
		records, err := readJournal(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", filepath.Base(name), err))
		}
		all = append(all, records...)
	}
	slices.SortStableFunc(all, func(a, b checker.Record) int { return a.At.Compare(b.At) })
	return all, errors.Join(errs...)
}

// readJournal reads one. Its last line may be torn: the process was killed then.
func readJournal(name string) ([]checker.Record, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if end := bytes.LastIndexByte(text, '\n'); end < len(text)-1 {
		text = text[:end+1]
	}
	var records []checker.Record
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r checker.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		records = append(records, r)
	}
	return records, lines.Err()
}
