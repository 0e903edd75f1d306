// Package eventtype finds event types that a handler asks for and that no producer writes. It
// compares a handler's types with the seen types, which are the types of events in a stream or a
// database. For a misspelt type, it suggests the type that was probably meant.
package eventtype

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// UsedSQL is a statement that returns the subjects in use, as far as the database shows them. It
// reads a few thousand rows. Pass the statement to schema.In.
//
//go:embed sql/used.sql
var UsedSQL string

// maxSubjects is the largest number of subjects for which InStream reads a stream. If a stream has
// more subjects, they are not event types: the stream has, for instance, one subject for each
// order.
const maxSubjects = 10_000

// InStream returns the subjects of the events that a stream has, sorted. If complete is true, all
// events that the stream has got since its oldest message have these subjects. InStream returns no
// subjects, and the result complete is false, if the stream is empty, if it removes events that its
// consumers have handled, or if it has more than 10,000 subjects.
//
// InStream sends at most two requests to the broker. The stream's cached info must be recent.
func InStream(ctx context.Context, stream jetstream.Stream) (subjects []string, complete bool, err error) {
	info := stream.CachedInfo()
	//guard:a-stream-that-forgets-tells-nothing 1 false
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

// Typo is a type that a handler asks for and that was not seen. Near is a type that was seen and is
// spelled nearly the same.
type Typo struct{ Type, Near string }

// Verdict is the result of [Examine]: which of a handler's types were not seen.
type Verdict struct {
	// Typos are types that are probably misspelt.
	Typos []Typo

	// Silent says that no event of the handler's types was seen, but events of other types were.
	// This is not a fault, because handlers are often deployed before the producers of their
	// events. Silent can be true only if the seen subjects are complete.
	Silent bool

	// Unseen are the types that were not seen, without the typos.
	Unseen []string
}

// Examine compares the types that a handler asks for with the subjects that were seen. If complete
// is false, it finds only typos.
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

// Warnings returns a sentence for each type that is probably wrong. The parameter where names the
// place of the seen types, such as "in stream SHOP".
func (v Verdict) Warnings(where string) []string {
	var all []string
	for _, typo := range v.Typos {
		all = append(all, fmt.Sprintf("no event of type %s is %s; did you mean %s?", typo.Type, where, typo.Near))
	}
	return all
}

// Do says what to do about the warnings.
const Do = "correct the handler's Types, if they are misspelt; if the producer publishes under another subject than the type, use Subjects; if the type is new, it is fine"

// Note returns a sentence if v.Silent is true, otherwise "". where is the same as for Warnings.
func (v Verdict) Note(where string) string {
	//guard:a-new-type-is-no-slip true
	if !v.Silent {
		return ""
	}
	return fmt.Sprintf("no event of type %s is %s yet, but events of other types are; that is fine if their producer is not rolled out yet", Some(v.Unseen), where)
}

// Some returns the first few types, and the number of the others.
func Some(types []string) string {
	const most = 5
	if len(types) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(types[:most], ", "), len(types)-most)
	}
	return strings.Join(types, ", ")
}

// Near returns the known type that is most similar to name, but not equal to it. It returns
// "" if no type is so similar that a typing mistake is likely.
//
// If two types differ only in digits, they are versions of one type (order.v1, order.v2). If a type
// has additional letters in front, the two types mean different things (user.activated,
// user.deactivated). If name ends with a letter d or ed that the known type lacks, it is the event
// that follows a command (payment.charge, payment.charged). None of these is a typing mistake.
func Near(name string, known []string) string {
	best, least := "", -1
	for _, k := range known {
		if k == name {
			continue
		}
		//guard:an-answer-to-a-command-is-no-slip false
		if name == k+"d" || name == k+"ed" {
			continue
		}
		if d := distance(name, k); d >= 0 && (least < 0 || d < least) {
			best, least = k, d
		}
	}
	return best
}

// separators makes all separators of the words in a type the same.
var separators = strings.NewReplacer("_", ".", "-", ".")

// distance returns how much two types differ, or -1 if that is no typing mistake.
func distance(a, b string) int {
	a, b = separators.Replace(strings.ToLower(a)), separators.Replace(strings.ToLower(b))
	if a == b {
		return 0
	}
	if isTail(a, b) || isTail(b, a) {
		return 1
	}
	a, b = differing(a, b)
	//guard:versions-are-no-slips 5 false
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

// isTail reports whether tail has at least two tokens, and the longer type (all) ends with them.
func isTail(tail, all string) bool {
	return strings.Contains(tail, ".") && strings.HasSuffix(all, "."+tail)
}

// differing returns two types without their common first and last tokens.
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

// edits returns the smallest number of changes that turn a into b. A change inserts, removes or
// replaces a letter, or swaps two neighbouring letters. No two changes are at the same place.
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
