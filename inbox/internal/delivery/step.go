package delivery

import "time"

// Step is one call of an external handler, for one event.
type Step struct {
	Handler   string
	Event     string // its dedupe key
	ID        int64  // of the held event, with the epoch of its claim
	Epoch     int64
	Name      string
	Revision  int32
	VendorKey string        // for the vendor
	Call      string        // a UUID, which no other call has
	Window    time.Duration // how long after its first start it may be called again

	Verdict StepVerdict
	Result  []byte
	Unsure  UnsureStep
}

// StepVerdict says whether a step is to be called; start.sql has what each means.
type StepVerdict string

// Whether a step is to be called.
const (
	StepCall    StepVerdict = "call"
	StepDone    StepVerdict = "done"
	StepUnknown StepVerdict = "unknown"
	StepAgain   StepVerdict = "again"
	StepLost    StepVerdict = "lost"
)

// UnsureStep is a receipt of calls whose outcome is not known.
type UnsureStep struct {
	Since      time.Time
	Key        string
	Revision   int32
	Unanswered int
	Last       string // the call that was begun last; "": it did not happen
}
