package checker

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
)

// Journals is the file name extension of journals.
const Journals = ".jsonl"

// Journal is the file in which a process notes its actions and their results, each in a line.
// Faults of servers do not affect it. If the process is killed, the lines stay.
type Journal struct {
	process string

	mu   sync.Mutex
	file *os.File
}

// OpenJournal opens a journal for one life of a process: from a start of the process to its end.
func OpenJournal(dir, process string) (*Journal, error) {
	name := JournalName(dir, process, os.Getpid())
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &Journal{process: process, file: file}, nil
}

// Note writes a record. If it cannot, it ends the process, because the run cannot use a process
// without records.
func (j *Journal) Note(r Record) {
	r.At, r.Process, r.Life = time.Now(), j.process, os.Getpid()
	line, err := json.Marshal(r)
	if err == nil {
		j.mu.Lock()
		_, err = j.file.Write(append(line, '\n'))
		j.mu.Unlock()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "write journal:", err)
		os.Exit(1)
	}
}

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }

// ReadHistory returns the records of all processes, sorted by time.
func ReadHistory(dir string) ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+Journals))
	if err != nil {
		return nil, err
	}
	var all []Record
	var errs []error
	for _, name := range files {
		records, err := readJournal(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", filepath.Base(name), err))
		}
		all = append(all, records...)
	}
	slices.SortStableFunc(all, func(a, b Record) int { return a.At.Compare(b.At) })
	return all, errors.Join(errs...)
}

// readJournal reads one journal. If the process was killed, the last line may be incomplete:
// readJournal leaves it out.
func readJournal(name string) ([]Record, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if end := bytes.LastIndexByte(text, '\n'); end < len(text)-1 {
		text = text[:end+1]
	}
	var records []Record
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		records = append(records, r)
	}
	return records, lines.Err()
}

// JournalName returns the file name for one life of a process.
func JournalName(dir, process string, pid int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d%s", process, pid, Journals))
}
