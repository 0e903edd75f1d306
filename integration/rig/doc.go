// Package rig has the parts that chaos and soak share: databases, connections, processes that are
// killed and started again, proxies that lose bytes, disks that are full, and a ledger with which a
// stream is compared. Chaos and soak decide what breaks and when, and which promises must then
// hold.
package rig
