// Natsd is the NATS server of a devstack.NATSConfig whose Program it is. Tests have it
// as a program of its own so that it is compiled without their race detector.
package main

import (
	"fmt"
	"os"

	"github.com/postroom/postroom/internal/natsd"
)

func main() {
	natsd.Serve()
	fmt.Fprintln(os.Stderr, "natsd: tests start this: see POSTROOM_TEST_BROKER in internal/devtest")
	os.Exit(2)
}
