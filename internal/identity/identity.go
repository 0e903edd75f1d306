// Package identity makes the names that handlers have at the broker.
package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Keys of a consumer's metadata. The values are the full names of the Postroom instance and of the
// handler.
const (
	InstanceKey = "postroom-instance"
	HandlerKey  = "postroom-handler"
)

// Consumer returns the readable durable name of a handler's consumer. Two handlers have different
// names. One handler in two databases on the same stream has two different names.
func Consumer(instance, handler string) string {
	readable := strings.ReplaceAll(handler, ".", "-") // a dot separates the tokens of a subject
	sum := sha256.Sum256([]byte(instance + "\x00" + handler))
	return readable + "-" + hex.EncodeToString(sum[:4])
}

// Owner returns the owner of a consumer according to its metadata: the Postroom instance
// and the handler. Both are empty if Postroom did not create the consumer.
func Owner(metadata map[string]string) (instance, handler string) {
	return metadata[InstanceKey], metadata[HandlerKey]
}
