package main

import (
	"strings"
	"testing"
)

const output = `setup: a line that is no JSON
{"Action":"start","Package":"github.com/postroom/postroom/relay"}
{"Action":"run","Package":"github.com/postroom/postroom/relay","Test":"TestA"}
{"Action":"pass","Package":"github.com/postroom/postroom/relay","Test":"TestA/part","Elapsed":3}
{"Action":"pass","Package":"github.com/postroom/postroom/relay","Test":"TestA","Elapsed":1.5}
{"Action":"pass","Package":"github.com/postroom/postroom","Test":"TestC","Elapsed":0.25}
{"Action":"pass","Package":"github.com/postroom/postroom/relay","Test":"TestB","Elapsed":0.5}
{"Action":"pass","Package":"github.com/postroom/postroom","Elapsed":1.04}
{"Action":"skip","Package":"github.com/postroom/postroom/relay/broker","Elapsed":0}
{"Action":"pass","Package":"github.com/postroom/postroom/relay","Elapsed":2}
`

func TestTable(t *testing.T) {
	packages, err := read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	want := "# Measured.\nrelay\t2.0\tTestA\t1.5\n.\t1.0\tTestC\t0.2\n"
	if got := table("Measured.", packages); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct{ output, want string }{
		"a test fails":      {output + `{"Action":"fail","Package":"github.com/postroom/postroom/inbox","Test":"TestD"}`, "1 tests and packages failed"},
		"nothing was built": {"no Go files\n", "no package was tested"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := read(strings.NewReader(tt.output)); err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
