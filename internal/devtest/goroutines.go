package devtest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// module begins the name of each function of this project.
const module = "github.com/postroom/postroom/"

// goroutinesEnd is how long goroutines may run after the last test of a package.
const goroutinesEnd = 20 * time.Second

var testsEnded = make(chan struct{})

// Forever blocks until the tests of the package have ended. It is for code of a test that must never
// return by itself.
func Forever() { <-testsEnded }

// awaitGoroutines waits until the goroutines that the tests began have ended: what a part leaves
// behind at each use stops a service in the end. It returns an error with the stacks of those that
// run on.
func awaitGoroutines(within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		left := goroutines()
		switch {
		case len(left) == 0:
			return nil
		case time.Now().After(deadline):
			return errors.New(fmt.Sprint(len(left), " goroutines run after the tests:\n\n", strings.Join(left, "\n\n")))
		}
		time.Sleep(mostLook)
	}
}

// goroutines returns the stacks of the goroutines that run code of this project or that it began,
// without the one that calls.
func goroutines() (stacks []string) {
	text := make([]byte, 1<<20)
	n := runtime.Stack(text, true)
	for n == len(text) {
		text = make([]byte, 2*len(text))
		n = runtime.Stack(text, true)
	}
	for _, stack := range strings.Split(strings.TrimSpace(string(text[:n])), "\n\n")[1:] {
		if strings.Contains(stack, module) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
