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
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/postroom/postroom"
)

// errBlocked says that a request would go to an address or port that is not allowed.
var errBlocked = errors.New("its address or port is not allowed")

// newTransport returns a transport that connects only to public addresses, on port 443, and to
// addresses that the config allows. It checks each address after its name was resolved, just before
// the connection is made. So a name that resolves to another address the next time does not get
// past the check.
func newTransport(cfg SenderConfig) *http.Transport {
	public := ssrf.New(ssrf.WithPorts(443))
	control := func(network, address string, c syscall.RawConn) error {
		if isAllowed(cfg.AllowedPrefixes, address) {
			return nil
		}
		if err := public.Safe(network, address, c); err != nil {
			return postroom.Permanent(fmt.Errorf("%w: %w", errBlocked, err))
		}
		return nil
	}
	// A host may have endpoints of several customers. HTTP/2 would send the requests to all of them
	// on one connection, and an endpoint that does not read would block that connection for the
	// other endpoints.
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	// A slow lookup ends before the attempt does, so that the error says that the lookup was slow.
	dialer := &net.Dialer{Timeout: cfg.Timeout / 2, Control: control, Resolver: cfg.Resolver}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
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

// isOursToMend reports whether no connection was made because of a fault on our side: our name
// server does not even know the root's name servers, which every name server knows. If it knows
// them, the lookup failed because of the name servers of the endpoint, which belong to the
// customer.
func isOursToMend(ctx context.Context, resolver *net.Resolver, err error) bool {
	if !isLookup(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = resolver.LookupNS(ctx, ".")
	return isLookup(err)
}

// isLookup reports whether there was no answer about a name. "There is no such name" is an answer.
func isLookup(err error) bool {
	var name *net.DNSError
	return errors.As(err, &name) && !name.IsNotFound
}
