// Package identity makes the names that handlers have at the broker, and the keys that events have in
// the table inbox.
package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Keys of a consumer's metadata. The values are the full names of the Postroom instance and of the
// handler, and the acknowledgement wait that a process of the handler set. If the consumer has
// another wait, someone else changed it.
const (
	InstanceKey = "postroom-instance"
	HandlerKey  = "postroom-handler"
	AckWaitKey  = "postroom-ack-wait"
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

// MaxKey is the largest number of bytes of a key that is kept unchanged. The column takes 1,024
// bytes, and the inbox adds a digest to the key of a conflict.
const MaxKey = 960

// DedupeKey returns the key of an event in the table inbox, for a handler without a DedupeKey: the
// source and the id, with a space between them. Postroom refuses a source with white space, but
// another program's source may have spaces. DedupeKey escapes spaces and percent signs, because
// otherwise two different pairs of source and id could have the same key.
func DedupeKey(source, id string) string {
	return Bounded(escaped.Replace(source) + " " + id)
}

//guard:the-key-of-a-source-with-a-space-is-its-own = strings.NewReplacer(" ", "%20")
var escaped = strings.NewReplacer("%", "%25", " ", "%20")

// Bounded shortens a key that is too long for the table inbox. The results for different keys are
// different.
func Bounded(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return strings.ToValidUTF8(key[:512], "") + "… sha256:" + hex.EncodeToString(sum[:])
}
