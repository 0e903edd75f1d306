package doctor

import "slices"

// Severity says how bad a finding is.
type Severity string

const (
	// Fault says that events are lost, stuck or applied wrongly, or will be when the next failure
	// happens.
	Fault Severity = "fault"

	// Warning says that something may become a fault, or may be one.
	Warning Severity = "warning"

	// Note is a fact that an operator may want to know. It is not a fault of this Postroom.
	Note Severity = "note"

	// Skipped says that a check could not be made. Remedy, if not empty, says what the check needs.
	Skipped Severity = "skipped"

	// OK says that the check found nothing wrong.
	OK Severity = "ok"
)

// Finding is one result of a check.
type Finding struct {
	// Check is the name of the check. Names do not change, so scripts can rely on them.
	Check string `json:"check"`

	Severity Severity `json:"severity"`

	// Subject is the name of the stream, handler, role or table that the finding is about. It is
	// empty if the finding is about the set-up as a whole.
	Subject string `json:"subject,omitempty"`

	// Text says what the check found, with the figures.
	Text string `json:"text"`

	// Remedy says which command to run or what to change. It is empty if Severity is OK or Note.
	Remedy string `json:"remedy,omitempty"`
}

// Report has the findings of an examination, in the order of the checks. Each check has at least
// one finding.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Of returns the findings with a severity.
func (r Report) Of(s Severity) []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity != s })
}

// Healthy reports whether there is neither a fault nor a warning.
func (r Report) Healthy() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Fault || f.Severity == Warning })
}
