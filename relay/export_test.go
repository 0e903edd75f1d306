package relay

// OutcomeOf returns the outcome of an error, as the publisher tells it.
func OutcomeOf(err error) Outcome { return failure(err) }

// ErrReconnected ends a Run whose connection broke and is back.
var ErrReconnected = errReconnected
