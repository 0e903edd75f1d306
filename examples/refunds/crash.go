package main

import (
	"context"
	"net/http"
	"os"
)

// crashHeader is a header of a request. It names the point at which the process that serves the
// request kills itself, as if by kill -9. A real service has no such header.
const crashHeader = "Crash"

// The points at which a request can kill its process.
const (
	beforeCall   = "before-call"   // before the provider is called; the reservation is committed
	afterCall    = "after-call"    // after the provider is called, before the result is recorded
	beforeCommit = "before-commit" // before the row, the entry and the event are committed
	afterCommit  = "after-commit"  // after that commit, before the guard stores the answer
	beforeAnswer = "before-answer" // before the answer is sent; the guard has stored it
)

type crashKey struct{}

// crashable lets a request choose the point at which it kills the process.
func crashable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if point := r.Header.Get(crashHeader); point != "" {
			r = r.WithContext(context.WithValue(r.Context(), crashKey{}, point))
			w = &deadly{w, r.Context()}
		}
		next.ServeHTTP(w, r)
	})
}

// dieAt kills the process if the request chose the given point.
func dieAt(ctx context.Context, point string) {
	if ctx.Value(crashKey{}) != point {
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // a process may always kill itself
	}
	select {} // wait for the end of the process
}

// A deadly writer kills the process just before an answer is sent, if the request chose that point.
type deadly struct {
	http.ResponseWriter
	ctx context.Context
}

func (d *deadly) WriteHeader(status int) {
	dieAt(d.ctx, beforeAnswer)
	d.ResponseWriter.WriteHeader(status)
}
