package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/postroom/postroom"
)

// errBlocked says that a request would go to an address or port that is not allowed.
var errBlocked = errors.New("its address or port is not allowed")

// errPartlyBlocked says that a host has forbidden addresses and allowed ones, and that no allowed one
// could be reached. The dialer goes on behind a forbidden address, but returns its first error.
var errPartlyBlocked = errors.New("one of its addresses is not allowed, and a connection to the others failed")

// triedKey is the key of a value in the context of a connection: whether one of the host's addresses
// was allowed. Then a forbidden address of the same host must not make the event dead.
type triedKey struct{}

// newTransport returns a transport that connects only to public addresses, on port 443, and to
// addresses that the config allows. It checks each address after the DNS lookup, just before it
// connects. So a name that later resolves to another address does not evade the check.
func newTransport(cfg SenderConfig) *http.Transport {
	public := ssrf.New(ssrf.WithPorts(443))
	control := func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if !isAllowed(cfg.AllowedPrefixes, address) {
			//guard:webhook-address false
			if err := public.Safe(network, address, c); err != nil {
				return postroom.Permanent(fmt.Errorf("%w: %w", errBlocked, err))
			}
		}
		ctx.Value(triedKey{}).(*atomic.Bool).Store(true)
		return nil
	}
	// A host may have endpoints of several customers. HTTP/2 would send the requests to all these
	// endpoints on one connection. An endpoint that does not read would then block the other
	// endpoints.
	only1 := new(http.Protocols)
	//guard:webhook-no-shared-connection do @; @0.1.SetHTTP2(true)
	only1.SetHTTP1(true)
	// A slow lookup fails before the attempt's time is over, so that the error names the lookup.
	//guard:webhook-lookup-takes-long 1.1 = 2 * @1
	dialer := &net.Dialer{Timeout: cfg.Timeout / 2, ControlContext: control, Resolver: cfg.Resolver}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			var tried atomic.Bool
			c, err := dialer.DialContext(context.WithValue(ctx, triedKey{}, &tried), network, address)
			//guard:webhook-host-with-an-allowed-address-is-not-blocked 2 false
			if errors.Is(err, errBlocked) && tried.Load() {
				return nil, errPartlyBlocked
			}
			return c, err
		},
		TLSClientConfig:     &tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: cfg.Timeout, ResponseHeaderTimeout: cfg.Timeout, Protocols: only1,
		MaxIdleConns: 256, MaxIdleConnsPerHost: cfg.Workers, IdleConnTimeout: time.Minute, // a host may have many endpoints
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		Proxy: nil, // a proxy from the environment would resolve the name and connect without this check
	}
}

// isAllowed reports whether SenderConfig.AllowedPrefixes contain the address.
func isAllowed(prefixes []netip.Prefix, address string) bool {
	to, err := netip.ParseAddrPort(address)
	return err == nil && slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(to.Addr().Unmap()) })
}

// isOursToMend reports whether a lookup failed because of our own name server. It asks the name
// server for the root's name servers, which every name server knows. If there is an answer, the
// fault is at the endpoint's name servers, which are the customer's.
func isOursToMend(ctx context.Context, resolver *net.Resolver, err error) bool {
	//guard:webhook-no-name-server = @1
	if !isLookup(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = resolver.LookupNS(ctx, ".")
	//guard:webhook-lookup-fails true
	return isLookup(err)
}

// isLookup reports whether a DNS lookup got no answer. "There is no such name" is an answer.
func isLookup(err error) bool {
	var name *net.DNSError
	return errors.As(err, &name) && !name.IsNotFound
}
