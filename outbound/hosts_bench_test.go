package outbound_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/postroom/postroom/outbound"
)

// BenchmarkHosts calls many hosts in turn. The cost of a call must not depend on the number of
// hosts.
func BenchmarkHosts(b *testing.B) {
	for _, n := range []int{10, 1000, 16_000} {
		b.Run(fmt.Sprintf("%d hosts", n), func(b *testing.B) {
			next := roundTripper(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 204, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
			})
			c := outbound.NewClient(outbound.Config{Next: next, Logger: quiet})
			reqs := make([]*http.Request, n)
			for i := range reqs {
				reqs[i] = requestTo(b.Context(), b, "GET", fmt.Sprintf("https://h%d.example/", i), "")
			}
			call := func(i int) {
				if _, err := c.Do(reqs[i%n]); err != nil {
					b.Fatal(err)
				}
			}
			for i := range n {
				call(i)
			}
			// Every tenth call is of a host that was not called before.
			req := requestTo(b.Context(), b, "GET", "https://new.example/", "")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if call(i); i%10 == 0 {
					req.URL.Host = fmt.Sprintf("n%d.example", i)
					if _, err := c.Do(req); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
