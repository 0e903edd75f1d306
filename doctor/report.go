package doctor

import "slices"

// Severity says how bad a finding is.
type Severity string

const (
	// Fault says that events are lost, stand still or take effect wrongly, or will
	// the next time that something fails.
	Fault Severity = "fault"

	// Warning says that nothing is wrong yet, or not for certain.
	Warning Severity = "warning"

	// Note says that nothing is wrong as far as this Postroom is concerned, and that
	// somebody may want to know.
	Note Severity = "note"

	// Skipped says that the check could not be made. Remedy says what it needs.
	Skipped Severity = "skipped"

	// OK says that it was looked at, and nothing is wrong.
	OK Severity = "ok"
)

// Finding is what a check has to say of one thing.
type Finding struct {
	// Check is the name of the check. It does not change, so that scripts may
	// rest on it.
	Check string `json:"check"`

	Severity Severity `json:"severity"`

	// Subject is what it is about: the name of a stream, a handler, a role or a
	// table. Empty if it is about the whole.
	Subject string `json:"subject,omitempty"`

	// Text says what is wrong, with the figures.
	Text string `json:"text"`

	// Remedy says what to type or to change. Findings that are OK have none.
	Remedy string `json:"remedy,omitempty"`
}

// Report is what an examination found, in the order of the checks. Every check
// that there is has a finding in it.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Of returns the findings of a severity.
func (r Report) Of(s Severity) []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity != s })
}

// Healthy reports whether there is neither a fault nor a warning.
func (r Report) Healthy() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Fault || f.Severity == Warning })
}
