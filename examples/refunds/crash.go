package main

import (
	"context"
	"net/http"
	"os"
)

// crashHeader has the process killed, as kill -9 does, at a point of its request. A
// service of yours has none.
const crashHeader = "Crash"

// Points.
const (
	beforeCall   = "before-call"   // of the provider; the reservation is committed
	afterCall    = "after-call"    // and before it is recorded
	beforeCommit = "before-commit" // of row, entry and event
	afterCommit  = "after-commit"  // and before the answer is kept
	beforeAnswer = "before-answer" // which is kept already
)

type crashKey struct{}

// crashable lets requests choose where they end the process.
func crashable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if point := r.Header.Get(crashHeader); point != "" {
			r = r.WithContext(context.WithValue(r.Context(), crashKey{}, point))
			w = &deadly{w, r.Context()}
		}
		next.ServeHTTP(w, r)
	})
}

// dieAt ends the process where the request is one that does so at this point.
func dieAt(ctx context.Context, point string) {
	if ctx.Value(crashKey{}) != point {
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // it does not fail for oneself
	}
	select {} // it is on its way
}

// deadly ends the process when an answer is about to leave.
type deadly struct {
	http.ResponseWriter
	ctx context.Context
}

func (d *deadly) WriteHeader(status int) {
	dieAt(d.ctx, beforeAnswer)
	d.ResponseWriter.WriteHeader(status)
}
