// Package machine describes the machine and the servers on which a report was measured.
package machine

import (
	"bufio"
	"os"
	"strings"
)

// Processor returns the processor's name, or an empty text if the system does not report it.
func Processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // the error does not matter, because this process only reads the file
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
