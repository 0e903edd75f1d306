package jsremedy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// ErrTooOld says that the NATS server is older than version 2.10.
var ErrTooOld = errors.New("the NATS server is too old")

// oldest is the minor version of the oldest NATS server 2 that Postroom works with. Older servers
// ignore what they do not know: a consumer gets no metadata, and only one of its subjects.
const oldest = 10

// lacking ends the error about a server that is too old. It has the advice behind the colon.
var lacking = fmt.Sprintf("which has no consumers with several subjects and metadata: use NATS 2.%d or later; the packages of some systems are older", oldest)

// CheckVersion returns an error that matches ErrTooOld if the server of a connection is too old. It
// returns nil if the client is not connected, because then it does not know the version.
func CheckVersion(nc *nats.Conn) error {
	version := nc.ConnectedServerVersion()
	//guard:a-broker-that-is-too-old-is-refused false
	if IsOlder(version, oldest) {
		return fmt.Errorf("%w: %s has version %s, %s", ErrTooOld, nc.ConnectedAddr(), version, lacking)
	}
	return nil
}

// IsOlder reports whether a version is older than 2.minor. It returns false for a version that it
// cannot read.
func IsOlder(version string, minor int) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a < 2 || a == 2 && b < minor)
}
