package outbox

import "github.com/postroom/postroom/internal/wire"

// ContentDigest is the digest that the log keeps of an event.
var ContentDigest = wire.Digest
