// Package bridge tests postmill with other packages of Watermill. It kills a relay that publishes
// to GoChannel, a relay that publishes to watermill-sql, and a process with a Router. It also runs
// the programs of docs/howto/migrate-from-watermill.md.
//
// These tests are not in the module of postmill, so that users of postmill do not get the
// dependencies of the tests.
package bridge
