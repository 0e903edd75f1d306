// Package rig has the parts that chaos and soak share: databases, connections, processes that it
// can kill and start again, proxies that can lose bytes, disks that it can fill, and a ledger with
// which it compares a stream. Chaos and soak decide what breaks and when, and which promises must
// then hold.
package rig
