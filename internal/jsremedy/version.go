package jsremedy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// ErrTooOld says that the NATS server is older than version 2.10.27.
var ErrTooOld = errors.New("the NATS server is too old")

// The oldest NATS server 2 that Postroom works with. Servers before 2.10 ignore what they do not know: a
// consumer gets no metadata, and only one of its subjects. On 2.10.9, a handler whose consumer was deleted
// and made again waits for ever. Debian 13 has 2.10.27, which make test-nats uses.
const oldestMinor, oldestPatch = 10, 27

// lacking ends the error about a server that is too old. It has the advice behind the colon.
var lacking = fmt.Sprintf("on which handlers can stop: use NATS 2.%d.%d or later; the packages of some systems are older", oldestMinor, oldestPatch)

// CheckVersion returns an error that matches ErrTooOld if the server of a connection is too old. It
// returns nil if the client is not connected, because then it does not know the version.
func CheckVersion(nc *nats.Conn) error {
	version := nc.ConnectedServerVersion()
	//guard:a-broker-that-is-too-old-is-refused false
	if IsOlder(version, oldestMinor, oldestPatch) {
		return fmt.Errorf("%w: %s has version %s, %s", ErrTooOld, nc.ConnectedAddr(), version, lacking)
	}
	return nil
}

// IsOlder reports whether a version is older than 2.minor.patch. It returns false for a version that it
// cannot read. A candidate for a release counts as this release.
func IsOlder(version string, minor, patch int) bool {
	var a, b, c int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &a, &b, &c); n < 2 { // the error does not say more than the number
		return false
	}
	return slices.Compare([]int{a, b, c}, []int{2, minor, patch}) < 0
}
