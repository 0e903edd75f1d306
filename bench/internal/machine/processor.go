// Package machine describes the processor and the servers of a report.
package machine

import (
	"bufio"
	"os"
	"strings"
)

// Processor returns the processor's name, if the system reports it.
func Processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // the file was only read
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
