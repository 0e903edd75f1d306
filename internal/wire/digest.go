package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

	"github.com/postroom/postroom"
)

// Digest returns the first 16 bytes of a SHA-256 over the content of an event: type,
// subject, key, data and user headers. The length of each field comes before the field, so that
// different contents never give the same bytes. Headers are sorted by name. NotBefore comes last,
// after an '@', with which no header's name begins.
//
// postroom.content_digest (schema/sql/0001_log.sql) computes the same digest in SQL.
func Digest(ev postroom.Event) []byte {
	fields := make([]byte, 0, 256) // one buffer for the short fields: few calls of Write, and no copy of the data
	fields = appendField(fields, ev.Type)
	fields = appendField(fields, ev.Subject)
	fields = appendField(fields, ev.Key)
	fields = appendLength(fields, len(ev.Data))
	h := sha256.New()
	h.Write(fields)
	h.Write(ev.Data)

	fields = fields[:0]
	if len(ev.Headers) > 0 {
		for _, name := range slices.Sorted(maps.Keys(ev.Headers)) {
			fields = appendField(fields, name)
			fields = appendField(fields, ev.Headers[name])
		}
	}
	if !ev.NotBefore.IsZero() {
		fields = appendField(fields, "@"+strconv.FormatInt(ev.NotBefore.UnixMicro(), 10))
	}
	h.Write(fields)
	return h.Sum(fields[:0])[:16:16]
}

func appendField(fields []byte, field string) []byte {
	return append(appendLength(fields, len(field)), field...)
}

func appendLength(fields []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(fields, uint32(n)) //nolint:gosec // a field is at most MaxData long
}
