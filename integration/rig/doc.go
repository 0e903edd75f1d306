// Package rig is what chaos and soak are built from: databases, connections, processes that
// are killed and live again, proxies that lose what they carry, disks that are full, and a
// ledger that a stream is held against. Which of it breaks when, and what has to hold then,
// is theirs.
package rig
