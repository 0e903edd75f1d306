// Package identity says by what handlers are known to the broker.
package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Keys of a consumer's metadata, which hold the full names.
const (
	InstanceKey = "postroom-instance"
	HandlerKey  = "postroom-handler"
)

// Consumer returns the durable name of a handler: readable, and unlike that of any
// other handler or of another database on the same stream.
func Consumer(instance, handler string) string {
	readable := strings.ReplaceAll(handler, ".", "-") // a dot separates the tokens of a subject
	sum := sha256.Sum256([]byte(instance + "\x00" + handler))
	return readable + "-" + hex.EncodeToString(sum[:4])
}

// Owner returns whose a consumer is, by its metadata: the Postroom and the handler,
// both empty for one that no Postroom made.
func Owner(metadata map[string]string) (instance, handler string) {
	return metadata[InstanceKey], metadata[HandlerKey]
}
