package saga

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// plan is one version of a definition.
type plan[S any] struct {
	name    string
	version int
	steps   []Step[S]
	ended   End[S]
	prefix  string // prefix of subjects
}

// find returns the index of the step with a name, or -1.
func (p *plan[S]) find(step string) int {
	return slices.IndexFunc(p.steps, func(s Step[S]) bool { return s.Name == step })
}

// The types of a saga's own events are the name of the saga and one of these suffixes.
const (
	deadlineSuffix = ".deadline"
	decisionSuffix = ".decision"
)

// types puts the types of the plan's replies into the map all.
func (p *plan[S]) types(all map[string]bool) {
	for _, s := range p.steps {
		for _, r := range []Reply[S]{s.Done, s.Failed, s.Undone} {
			for _, a := range r.answers {
				all[a.eventType] = true
			}
		}
	}
}

// plans returns the versions of a definition: its own first, then those of Older.
func (d *Definition[S]) plans() []*plan[S] {
	all := []*plan[S]{{d.Name, d.Version, d.Steps, d.Ended, d.SubjectPrefix}}
	for _, o := range d.Older {
		all = append(all, &plan[S]{d.Name, o.Version, o.Steps, o.Ended, d.SubjectPrefix})
	}
	return all
}

// The defaults of a Definition.
const (
	defaultStuck = time.Hour
	defaultKeep  = 30 * 24 * time.Hour
)

// complete sets the fields that the definition leaves empty.
func (d *Definition[S]) complete() {
	d.Stuck = cmp.Or(d.Stuck, defaultStuck)
	d.Keep = cmp.Or(d.Keep, defaultKeep)
}

// validate returns all faults of a definition.
func (d *Definition[S]) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("definition: "+format, args...)) }
	if err := validType(d.Name + deadlineSuffix); err != nil || d.Name == "" || len(d.Name) > 128 {
		fault("Name %q is not valid: the types of the saga's events begin with it, so use letters, digits, '_', '-' and dots between them, 128 at most", d.Name)
	}
	if d.SubjectPrefix != "" && validType(d.SubjectPrefix+"."+d.Name+deadlineSuffix) != nil {
		fault("SubjectPrefix %q is not valid: use letters, digits, '_', '-' and dots between them", d.SubjectPrefix)
	}
	if d.Stuck < 0 || d.Keep < 0 {
		fault("Stuck and Keep must not be negative")
	}
	seen := make(map[int]bool)
	for _, p := range d.plans() {
		switch {
		case p.version < 1:
			fault("Version is %d: count from 1", p.version)
		case seen[p.version]:
			fault("version %d is defined twice: raise Version", p.version)
		case p.version > d.Version:
			fault("Older has version %d, which is not older than %d", p.version, d.Version)
		}
		seen[p.version] = true
		faults = append(faults, p.validate()...)
	}
	if d.Start.isSet() {
		if err := validType(d.Start.eventType); err != nil {
			fault("Start: %w", err)
		}
		if what := d.uses(d.Start.eventType); what != "" {
			fault("Start: %s is also %s, so the saga could not tell the two apart", d.Start.eventType, what)
		}
	}
	return errors.Join(faults...)
}

// uses returns what a saga uses an event type for, besides Start. The result is empty if the saga
// has no other use for the type.
func (d *Definition[S]) uses(eventType string) string {
	if eventType == d.Name+deadlineSuffix || eventType == d.Name+decisionSuffix {
		return "an event of the saga itself"
	}
	for _, p := range d.plans() {
		replies := make(map[string]bool)
		p.types(replies)
		switch {
		case replies[eventType]:
			return "a reply"
		case eventType == p.ended.Done.eventType || eventType == p.ended.Undone.eventType:
			return "an event that announces its end"
		case slices.ContainsFunc(p.steps, func(s Step[S]) bool { return eventType == s.Do.eventType || eventType == s.Undo.eventType }):
			return "a command"
		}
	}
	return ""
}

// validate returns all faults of one version.
func (p *plan[S]) validate() (faults []error) {
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("definition: version %d: "+format, append([]any{p.version}, args...)...))
	}
	if len(p.steps) == 0 {
		fault("Steps is empty")
	}
	seen := make(map[string]bool)
	for i := range p.steps {
		s := &p.steps[i]
		if validType(s.Name) != nil || strings.Contains(s.Name, ":") {
			fault("step %d has the name %q: use letters, digits, '_', '-' and dots between them", i+1, s.Name)
		}
		if seen[s.Name] {
			fault("two steps have the name %s: give each step its own name", s.Name)
		}
		seen[s.Name] = true
		for _, problem := range s.problems() {
			fault("step %s: %s", s.Name, problem)
		}
		for _, problem := range s.badTypes(p.name) {
			fault("step %s: %s", s.Name, problem)
		}
	}
	for _, a := range []Action[S]{p.ended.Done, p.ended.Undone} {
		if a.local != nil {
			fault("Ended must be Send: use a last step with Local")
		}
		if a.eventType != "" && validType(a.eventType) != nil {
			fault("Ended: %q is not an event type", a.eventType)
		}
		if a.eventType == p.name+deadlineSuffix || a.eventType == p.name+decisionSuffix {
			fault("Ended: %s is an event of the saga itself", a.eventType)
		}
	}
	return faults
}

// problems returns the contradictions in a step.
func (s *Step[S]) problems() (all []string) {
	wrong := func(is bool, problem string) {
		if is {
			all = append(all, problem)
		}
	}
	sends := s.Do.eventType != ""
	wrong(s.Do.isSet() && s.Within > 0 && !s.Undo.isSet(), "it does something and has Within, so it needs an Undo: when its time is over, its outcome is unknown")
	unsure := slices.ContainsFunc(s.Failed.answers, func(a answer[S]) bool { return a.anyCause || a.died })
	wrong(s.Do.isSet() && unsure && !s.Undo.isSet(), "it does something and may fail with an unknown outcome (OnAny, Died), so it needs an Undo")
	wrong(s.Within < 0, "Within is negative")
	wrong(s.Within > 0 && !s.Done.isSet(), "it has Within, but no Done to wait for")
	wrong(s.Failed.isSet() && !s.Done.isSet(), "it has Failed, but no Done")
	wrong(s.Undo.eventType != "" && !s.Undone.isSet(), "its Undo sends, so it needs Undone, for which the saga waits")
	wrong(s.Undone.isSet() && s.Undo.eventType == "", "it has Undone, but its Undo sends nothing")
	wrong(!s.Do.isSet() && !s.Undo.isSet() && !s.Done.isSet(), "it does nothing and waits for nothing")
	if !sends {
		for _, a := range slices.Concat(s.Done.answers, s.Failed.answers) {
			wrong(!a.anyCause, "it sends nothing that could cause "+a.eventType+": use OnAny")
		}
	}
	return all
}

// badTypes returns the event types of a step that are not valid, or that are ambiguous.
func (s *Step[S]) badTypes(name string) (all []string) {
	seen := make(map[string]bool)
	for _, a := range slices.Concat(s.Done.answers, s.Failed.answers) {
		if seen[a.eventType] {
			all = append(all, a.eventType+" occurs twice in Done and Failed")
		}
		seen[a.eventType] = true
	}
	for _, a := range s.Undone.answers {
		seen[a.eventType] = true
	}
	for _, a := range []Action[S]{s.Do, s.Undo} {
		if a.eventType != "" {
			seen[a.eventType] = true
		}
	}
	for eventType := range seen {
		if err := validType(eventType); err != nil {
			all = append(all, fmt.Sprintf("%q is not an event type", eventType))
		}
		if eventType == name+deadlineSuffix || eventType == name+decisionSuffix {
			all = append(all, eventType+" is an event of the saga itself")
		}
	}
	slices.Sort(all)
	return all
}
