package model

import (
	"fmt"
	"strings"
)

// Result is the result of an exploration.
type Result struct {
	States int
	Steps  int // from one state to another
	Ends   int // states in which nothing more can happen
	Depth  int // steps on the shortest way to the farthest state
	Taken  map[Act]bool

	Broken Invariant // the first invariant that broke; zero if every state was visited and no invariant broke
	Way    []Step    // the shortest way to the state in which the invariant broke
}

// String describes the result, with the way to a broken invariant.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d states, %d steps, %d ends, %d deep", r.States, r.Steps, r.Ends, r.Depth)
	if r.Broken != 0 {
		fmt.Fprintf(&b, "; %s broke after %d steps:", r.Broken, len(r.Way))
		for i, step := range r.Way {
			fmt.Fprintf(&b, "\n%4d  %s", i+1, step)
		}
	}
	return b.String()
}

// Explore visits every state of a world, the nearest first, until a state breaks one of the given
// invariants. If no state breaks one, and [NoLoss] is given, Explore also looks for a path that
// goes on for ever: such a path breaks NoLoss.
func (w World) Explore(invariants Invariant) Result {
	e := explorer{world: w, index: make(map[state]int32)}
	var taken [len(acts)]bool
	e.add(first(w), -1)
	result := Result{Taken: make(map[Act]bool)}
	for at := 0; at < len(e.states); at++ {
		e.starts = append(e.starts, len(e.edges))
		s := e.states[at]
		w.next(s, func(step Step, to state) {
			taken[step.Act] = true
			e.edges = append(e.edges, e.add(to, int32(at))) //nolint:gosec // the number of states fits
		})
		ended := len(e.edges) == e.starts[at]
		if ended {
			result.Ends++
		}
		if broken := s.violated(ended) & invariants; broken != 0 {
			result.Broken, result.Way = broken, e.way(at)
			break
		}
	}
	for act, is := range taken {
		if is {
			result.Taken[Act(act)] = true //nolint:gosec // act is below the constant Acts
		}
	}
	result.States, result.Steps = len(e.states), len(e.edges)
	result.Depth = len(e.way(len(e.starts) - 1))
	if result.Broken == 0 && invariants&NoLoss != 0 {
		if at, ok := e.cycle(); ok {
			result.Broken, result.Way = NoLoss, e.way(at)
		}
	}
	return result
}

// next takes every step that is possible in a state. It calls the function yield with each step
// that changes the state, and with the new state.
func (w World) next(s state, yield func(Step, state)) {
	ended := true
	each := func(step Step, to state) {
		if to = w.canonical(to); to != s {
			ended = false
			yield(step, to)
		}
	}
	switch {
	case !s.drawn && !s.handling:
		w.draw(s, each)
	case s.handling:
		for n := range s.inbox.workers {
			w.workerSteps(s, n, each)
		}
	default:
		produce(s, each)
		w.failOver(s, each)
		w.broker(s, each)
		for n := range s.relays {
			w.relaySteps(s, n, each)
		}
		if ended { // nothing else can happen any more
			each(Step{Act: turns}, beginHandling(s))
		}
	}
}

// explorer is an exploration under way.
type explorer struct {
	world   World
	index   map[state]int32
	states  []state
	parents []int32
	edges   []int32 // the states to which steps lead, sorted by the states in which the steps start
	starts  []int   // the index of each state's first edge
}

// add returns the number of a state. If the state is new, it notes from which state it was reached.
func (e *explorer) add(s state, parent int32) int32 {
	if at, known := e.index[s]; known {
		return at
	}
	at := int32(len(e.states)) //nolint:gosec // the number of states fits
	e.index[s] = at
	e.states, e.parents = append(e.states, s), append(e.parents, parent)
	return at
}

// way returns the steps of the shortest way to a state.
func (e *explorer) way(at int) []Step {
	var way []Step
	for e.parents[at] >= 0 {
		from, to, found := e.parents[at], e.states[at], false
		e.world.next(e.states[from], func(step Step, s state) {
			if !found && s == to {
				way, found = append([]Step{step}, way...), true
			}
		})
		at = int(from)
	}
	return way
}

// cycle returns a state on or after a cycle, if any. It removes states to which no step leads, and
// their steps, until a step leads to every state left. Those are on or after a cycle.
func (e *explorer) cycle() (at int, ok bool) {
	leading := make([]int32, len(e.states))
	for _, to := range e.edges {
		leading[to]++
	}
	queue, removed := []int{0}, 0
	for ; len(queue) > 0; removed++ {
		from := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		end := len(e.edges)
		if from+1 < len(e.starts) {
			end = e.starts[from+1]
		}
		for _, to := range e.edges[e.starts[from]:end] {
			if leading[to]--; leading[to] == 0 {
				queue = append(queue, int(to))
			}
		}
	}
	if removed == len(e.states) {
		return 0, false
	}
	for at, n := range leading {
		if n > 0 {
			return at, true
		}
	}
	return 0, false
}
