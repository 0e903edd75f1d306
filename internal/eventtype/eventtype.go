// Package eventtype finds event types that a handler asks for and that nobody writes,
// by comparing them with those that were seen, and says which one was probably meant.
package eventtype

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// UsedSQL returns the subjects in use, as far as a database shows them. It reads some
// thousands of rows at the most, and is for schema.In.
//
//go:embed sql/used.sql
var UsedSQL string

// maxSubjects is how many subjects of a stream are looked at. A stream with more has
// subjects that are not event types, such as one for each order.
const maxSubjects = 10_000

// InStream returns the subjects of the events that a stream has, sorted. complete says
// that they are all of which it ever had events, as far as it keeps them: an event of a
// type that is not among them would be there. It is false for a stream that removes
// what its consumers have handled, and for one with too many subjects.
//
// It asks the broker once or twice. The stream's cached info has to be recent.
func InStream(ctx context.Context, stream jetstream.Stream) (subjects []string, complete bool, err error) {
	info := stream.CachedInfo()
	if info.Config.Retention != jetstream.LimitsPolicy || info.State.NumSubjects > maxSubjects {
		return nil, false, nil
	}
	if info, err = stream.Info(ctx, jetstream.WithSubjectFilter(">")); err != nil {
		return nil, false, fmt.Errorf("list the subjects of stream %s: %w", stream.CachedInfo().Config.Name, err)
	}
	for subject := range info.State.Subjects {
		subjects = append(subjects, subject)
	}
	slices.Sort(subjects)
	return subjects, len(subjects) > 0, nil
}

// Typo is a type that a handler asks for, of which no event was seen, and one that was
// seen and is spelled nearly the same.
type Typo struct{ Type, Near string }

// Verdict is what is to be said of the types that a handler asks for.
type Verdict struct {
	// Typos are types that are probably misspelt.
	Typos []Typo

	// Silent says that no event of any of its types was seen, and events of others were.
	// Nothing is wrong with that: handlers are rolled out before what writes their events.
	Silent bool

	// Unseen are the types of which no event was seen, save typos.
	Unseen []string
}

// Examine compares the types that a handler asks for with the subjects that were seen.
// complete says that an event of each type that is written would be among them: without
// that only typos are found.
func Examine(asked, seen []string, complete bool) Verdict {
	var v Verdict
	others := slices.DeleteFunc(slices.Clone(seen), func(s string) bool { return slices.Contains(asked, s) })
	for _, a := range asked {
		if slices.Contains(seen, a) {
			continue
		}
		if near := Near(a, others); near != "" {
			v.Typos = append(v.Typos, Typo{a, near})
		} else if complete {
			v.Unseen = append(v.Unseen, a)
		}
	}
	v.Silent = len(others) > 0 && len(asked) > 0 && len(v.Unseen) == len(asked)
	return v
}

// Warnings says what is probably wrong, a sentence for each type. where is what was
// looked at, as in "in stream SHOP".
func (v Verdict) Warnings(where string) []string {
	var all []string
	for _, typo := range v.Typos {
		all = append(all, fmt.Sprintf("no event of type %s is %s; did you mean %s?", typo.Type, where, typo.Near))
	}
	return all
}

// Do is what to do about what Warnings says.
const Do = "correct the handler's Types, if they are misspelt; if the producer publishes under another subject than the type, use Subjects; if the type is new, it is fine"

// Note says that none of the types was seen, or nothing. where is as in Warnings.
func (v Verdict) Note(where string) string {
	if !v.Silent {
		return ""
	}
	return fmt.Sprintf("no event of type %s is %s yet; events of other types are: fine, if what writes them is not rolled out yet", Some(v.Unseen), where)
}

// Some lists the first of some types.
func Some(types []string) string {
	const most = 5
	if len(types) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(types[:most], ", "), len(types)-most)
	}
	return strings.Join(types, ", ")
}

// Near returns the one of known that is most like name and not equal to it, or nothing
// if none is so like it that one of the two is probably a slip.
//
// Types that differ by digits alone are versions of one (order.v1, order.v2), and those of
// which one has letters before the other mean different things (user.activated,
// user.deactivated): neither is a slip.
func Near(name string, known []string) string {
	best, least := "", -1
	for _, k := range known {
		if k == name {
			continue
		}
		if d := distance(name, k); d >= 0 && (least < 0 || d < least) {
			best, least = k, d
		}
	}
	return best
}

// separators of words in a type are all the same here.
var separators = strings.NewReplacer("_", ".", "-", ".")

// distance says how far apart two types are, or -1 if they are two different ones.
func distance(a, b string) int {
	a, b = separators.Replace(strings.ToLower(a)), separators.Replace(strings.ToLower(b))
	if a == b {
		return 0
	}
	if isTail(a, b) || isTail(b, a) {
		return 1
	}
	a, b = differing(a, b)
	if a == "" || b == "" || strings.HasSuffix(a, b) || strings.HasSuffix(b, a) || withoutDigits(a) == withoutDigits(b) {
		return -1
	}
	d := edits(a, b)
	switch n := max(len(a), len(b)); {
	case n <= 3, n <= 9 && d > 1, n <= 15 && d > 2, d > 3:
		return -1
	}
	return d
}

// isTail reports whether all is tail with tokens before it, of which tail has two or more.
func isTail(tail, all string) bool {
	return strings.Contains(tail, ".") && strings.HasSuffix(all, "."+tail)
}

// differing leaves out the tokens that two types have in common, at their starts and ends.
func differing(a, b string) (restA, restB string) {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for len(as) > 0 && len(bs) > 0 && as[0] == bs[0] {
		as, bs = as[1:], bs[1:]
	}
	for len(as) > 0 && len(bs) > 0 && as[len(as)-1] == bs[len(bs)-1] {
		as, bs = as[:len(as)-1], bs[:len(bs)-1]
	}
	return strings.Join(as, "."), strings.Join(bs, ".")
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// edits counts the letters that one has to insert, remove, replace or swap with the next
// to make a into b, each place at most once.
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
