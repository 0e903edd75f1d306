package ledger

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgconn"
)

// If a caller gives up before a statement begins to write its item, the item is not written. If it
// gives up later, it does not wait for the answer.
func TestCallerThatGivesUpLeavesItsGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		var written []string
		g := &Group[string]{
			Write: func(_ context.Context, items []string) error {
				<-answer
				written = append(written, items...)
				return nil
			},
			Bytes: func(s string) int { return len(s) },
		}
		patient := t.Context()
		given, cancel := context.WithCancel(t.Context())
		go func() {
			if err := g.DoUntil(given, "begun"); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller whose item is being written: %v", err)
			}
		}()
		synctest.Wait()
		go func() {
			if err := g.DoUntil(given, "waits"); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller whose item waits: %v", err)
			}
		}()
		go func() {
			if err := g.DoUntil(patient, "patient"); err != nil {
				t.Errorf("a patient caller: %v", err)
			}
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err := g.DoUntil(given, "late"); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who gave up before: %v", err)
		}
		close(answer)
		synctest.Wait()
		if want := []string{"begun", "patient"}; !slices.Equal(written, want) {
			t.Errorf("written: %v, want %v", written, want)
		}
	})
}

// Large items get their own statements.
func TestGroupIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := make(chan struct{})
		var sizes []int
		g := &Group[int]{
			Write: func(_ context.Context, items []int) error {
				<-first
				sizes = append(sizes, len(items))
				return nil
			},
			Bytes: func(n int) int { return n },
		}
		for range 6 {
			go func() {
				if err := g.Do(mostBytes / 2); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		close(first)
		synctest.Wait()
		if want := []int{1, 2, 2, 1}; !slices.Equal(sizes, want) {
			t.Errorf("statements of %v items, want %v", sizes, want)
		}
	})
}

// If an item has failed, items that would fail with the same error are not tried.
func TestItemsThatWouldFailAlikeAreNotTried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, answer := make(chan struct{}), make(chan struct{})
		var tried []string
		g := Group[string]{
			Joint: func(item, other string, err error) bool { return item == other && isLockTimeout(err) },
			Write: func(_ context.Context, items []string) error {
				switch {
				case items[0] == "first":
					close(begun)
					<-answer
					return nil
				case len(items) == 1:
					tried = append(tried, items[0])
				}
				if slices.Contains(items, "blocked") {
					return &pgconn.PgError{Code: lockNotAvailable}
				}
				return nil
			},
		}
		go func() { _ = g.Do("first") }() // so that the others wait
		<-begun
		results := make(chan string, 5)
		for _, item := range []string{"a", "blocked", "blocked", "b", "blocked"} {
			go func() {
				if err := g.Do(item); (err != nil) != (item == "blocked") {
					t.Errorf("%s: %v", item, err)
				}
				results <- item
			}()
			synctest.Wait()
		}
		close(answer)
		for range cap(results) {
			<-results
		}
		if want := []string{"a", "blocked", "b"}; !slices.Equal(tried, want) {
			t.Errorf("tried one by one: %v, want %v", tried, want)
		}
	})
}

// If enough items wait, a second statement writes them. If fewer do, they wait for the first.
func TestGroupWithTwoStatements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		var mu sync.Mutex
		var writes []int
		g := Group[int]{Enough: 3, Write: func(_ context.Context, items []int) error {
			mu.Lock()
			writes = append(writes, len(items))
			mu.Unlock()
			<-answer
			return nil
		}}
		var all sync.WaitGroup
		do := func(n int) {
			for i := range n {
				all.Go(func() { _ = g.Do(i) })
				synctest.Wait()
			}
		}
		want := func(when string, sizes ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(writes, sizes) {
				t.Errorf("%s: statements of %v items, want %v", when, writes, sizes)
			}
		}
		do(1)
		want("one caller", 1)
		do(2)
		want("two others wait", 1)
		do(1)
		want("a third waits", 1, 3)
		do(5)
		want("both are under way", 1, 3)
		answer <- struct{}{}
		want("one of them ended", 1, 3, 5)
		do(2)
		answer <- struct{}{}
		want("the other ended, and two wait", 1, 3, 5)
		answer <- struct{}{}
		want("the last ended", 1, 3, 5, 2)
		answer <- struct{}{}
		all.Wait()
		do(1)
		want("one caller again", 1, 3, 5, 2, 1)
		answer <- struct{}{}
		all.Wait()
	})
}
