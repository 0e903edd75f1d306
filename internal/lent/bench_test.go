package lent

import (
	"context"
	"testing"
)

func BenchmarkExecOfPgx(b *testing.B) {
	for b.Loop() {
		_, _ = ended.Exec(context.Background(), "SELECT 1")
	}
}

func BenchmarkExec(b *testing.B) {
	t := New(ended, nil, nil)
	for b.Loop() {
		_, _ = t.Exec(context.Background(), "SELECT 1")
	}
}

func BenchmarkLendAndBack(b *testing.B) {
	for b.Loop() {
		New(ended, nil, nil).Back(0)
	}
}
