package outbox

// ContentDigest is the digest that the log keeps of an event.
var ContentDigest = contentDigest
