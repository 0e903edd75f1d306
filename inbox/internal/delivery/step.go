package delivery

import "time"

// Step is one call of an external handler, for one event.
type Step struct {
	Handler   string
	Event     string // its dedupe key
	ID        int64  // the id of the held event; Epoch is the epoch of its claim
	Epoch     int64
	Name      string
	Revision  int32
	VendorKey string        // the key that the called system (the vendor) gets
	Call      string        // a UUID that no other call has
	Window    time.Duration // how long after its first start the step may be called again

	Verdict StepVerdict
	Result  []byte
	Unsure  UnsureStep
}

// StepVerdict says whether a step must be called. start.sql says what each verdict means.
type StepVerdict string

// The verdicts.
const (
	StepCall    StepVerdict = "call"
	StepDone    StepVerdict = "done"
	StepUnknown StepVerdict = "unknown"
	StepAgain   StepVerdict = "again"
	StepLost    StepVerdict = "lost"
)

// UnsureStep is the receipt of calls whose outcome is not known.
type UnsureStep struct {
	Since      time.Time
	Key        string
	Revision   int32
	Unanswered int
	Last       string // the call that began last; "" if that call is known not to have happened
}
