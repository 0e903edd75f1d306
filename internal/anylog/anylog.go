// Package anylog makes relays over logs other than the table outbox: logs in memory, for tests of
// packages that a relay uses, and logs that measure what a relay does.
package anylog

import (
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// Over makes a relay. The type of cfg is relay.Config, and the result is a *relay.Relay. Package relay
// sets this variable, because its own functions show no type of an internal package.
var Over func(log eventlog.Source, pub broker.Publisher, cfg any) any

// Relay returns a relay over a log. R is *relay.Relay, and the type of cfg is relay.Config.
func Relay[R any](log eventlog.Source, pub broker.Publisher, cfg any) R {
	return Over(log, pub, cfg).(R)
}
