//go:build linux || darwin

package workload

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/postroom/postroom/integration/checker"
)

// VendorServer is another company's service. If it gets the same key again, it does nothing. Some
// requests fail and some answers are lost, as at a real vendor: see [VendorServer.ServeHTTP].
type VendorServer struct {
	journal *checker.Journal
	server  *http.Server
	URL     string

	mu   sync.Mutex
	done map[string]bool // the requests that were carried out, by key
}

// StartVendor starts a vendor. The vendor records in the journal which requests it carried out.
func StartVendor(j *checker.Journal) (*VendorServer, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the vendor: %w", err)
	}
	v := &VendorServer{journal: j, URL: "http://" + listener.Addr().String(), done: make(map[string]bool)}
	v.server = &http.Server{Handler: v, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = v.server.Serve(listener) }() // this goroutine ends with the server
	return v, nil
}

// Close ends the server.
func (v *VendorServer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return v.server.Shutdown(ctx)
}

// ServeHTTP carries a request out. Some requests fail before that. For others, the answer is lost.
func (v *VendorServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(io.LimitReader(r.Body, 1000))
	if err != nil {
		return // the caller is gone
	}
	luck := rand.IntN(100)
	if luck < 2 {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	var e checker.Event
	if _, err := fmt.Sscanf(string(text), "%s %d %d", &e.ID, &e.Key, &e.N); err != nil {
		http.Error(w, "what is this?", http.StatusBadRequest)
		return
	}
	v.carryOut(r.Header.Get("Idempotency-Key"), e)
	if luck < 4 {
		panic(http.ErrAbortHandler) // the connection is cut
	}
}

func (v *VendorServer) carryOut(key string, e checker.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.done[key] {
		v.done[key] = true
		v.journal.Note(checker.Record{What: checker.Call, Phase: checker.OK, ID: key, Events: []checker.Event{e}})
	}
}
