// Package bridge tests postmill with other packages of Watermill: a relay that publishes to
// GoChannel and to watermill-sql and is killed, a Router in a process that is killed, and
// the programs of docs/howto/migrate-from-watermill.md.
//
// These tests are here, and not in postmill, so that users of postmill do not get what they
// need.
package bridge
