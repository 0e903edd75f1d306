// Package rig has the parts of chaos and soak: databases, connections, processes that are
// killed and started again, proxies that lose bytes, disks that are full, and a ledger with
// which a stream is compared. Chaos and soak decide what breaks when, and what has to hold
// then.
package rig
