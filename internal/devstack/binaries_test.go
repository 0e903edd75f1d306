package devstack_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devstack"
)

func TestBinariesAreFoundInOrder(t *testing.T) {
	t.Parallel()
	machine := func(versions map[string]string, onPath string, globbed ...string) devstack.FakeMachine {
		m := devstack.FakeMachine{
			Executables: map[string]string{},
			Globs:       map[string][]string{"/usr/lib/postgresql/*/bin/postgres": {}},
			Versions:    map[string]string{},
		}
		for dir, version := range versions {
			for _, name := range []string{"postgres", "initdb"} {
				m.Executables[dir+"/"+name] = dir + "/" + name
			}
			m.Versions[dir+"/postgres"] = "postgres (PostgreSQL) " + version + "\n"
		}
		if onPath != "" {
			m.Executables["postgres"] = onPath + "/postgres"
			m.Executables[onPath+"/postgres"] = onPath + "/postgres"
		}
		for _, dir := range globbed {
			m.Globs["/usr/lib/postgresql/*/bin/postgres"] = append(m.Globs["/usr/lib/postgresql/*/bin/postgres"], dir+"/postgres")
		}
		return m
	}
	for _, tt := range []struct {
		name    string
		machine devstack.FakeMachine
		want    []string
		says    string
	}{
		{
			"PATH before newer", machine(map[string]string{"/p": "15.3", "/a": "16.1", "/b": "17.5"}, "/p", "/a", "/b"),
			[]string{"/p", "/b", "/a"},
			"",
		},
		{
			"9 is older than 17 and too old", machine(map[string]string{"/a": "9.6", "/b": "17beta1"}, "", "/a", "/b"),
			[]string{"/b"},
			"/a: version 9 is too old, want 14 or later",
		},
		{"one directory once", machine(map[string]string{"/a": "16.1"}, "/a", "/a"), []string{"/a"}, ""},
		{"initdb is needed too", machine(nil, "/client"), nil, "/client: postgres without initdb"},
		{"nothing there", machine(nil, ""), nil, "no postgres on PATH"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.machine.Find()
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %v, want %v", got, tt.want)
			}
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("error is %v, want %q", err, tt.says)
			}
		})
	}
}

func TestMajorVersionIsReadFromEveryBuild(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)": 15,
		"postgres (PostgreSQL) 17.5 (Homebrew)\n":              17,
		"postgres (PostgreSQL) 18beta2":                        18,
	} {
		if got, err := devstack.MajorVersion(line); got != want || err != nil {
			t.Errorf("%q: got %d, %v", line, got, err)
		}
	}
	if _, err := devstack.MajorVersion("something else 3"); err == nil {
		t.Error("a line without a version passed")
	}
}
