// Package machine says on what a report is made: the processor, and the servers.
package machine

import (
	"bufio"
	"os"
	"strings"
)

// Processor returns the processor's name, where the system tells.
func Processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // it was read only
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
