package main

import (
	"context"
	"net/http"
	"os"
)

// crashHeader kills the process, as kill -9 does, at a point of its request. A real service
// has no such header.
const crashHeader = "Crash"

// Points.
const (
	beforeCall   = "before-call"   // of the provider; the reservation is committed
	afterCall    = "after-call"    // and before it is recorded
	beforeCommit = "before-commit" // of row, entry and event
	afterCommit  = "after-commit"  // and before the answer is stored
	beforeAnswer = "before-answer" // the answer is stored already
)

type crashKey struct{}

// crashable lets requests choose the point at which they kill the process.
func crashable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if point := r.Header.Get(crashHeader); point != "" {
			r = r.WithContext(context.WithValue(r.Context(), crashKey{}, point))
			w = &deadly{w, r.Context()}
		}
		next.ServeHTTP(w, r)
	})
}

// dieAt kills the process if the request chose this point.
func dieAt(ctx context.Context, point string) {
	if ctx.Value(crashKey{}) != point {
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // a process may always kill itself
	}
	select {} // the kill is on its way
}

// deadly kills the process when an answer is about to leave.
type deadly struct {
	http.ResponseWriter
	ctx context.Context
}

func (d *deadly) WriteHeader(status int) {
	dieAt(d.ctx, beforeAnswer)
	d.ResponseWriter.WriteHeader(status)
}
