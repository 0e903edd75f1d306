package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// oldest is the oldest PostgreSQL major version that Postroom supports.
const oldest = 14

// wellKnown are directories into which packages put server binaries. The packages do not add these
// directories to PATH.
var wellKnown = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // PostgreSQL's packages for Red Hat
	"/opt/homebrew/opt/postgresql*/bin",  // Homebrew on Apple silicon
	"/usr/local/opt/postgresql*/bin",     // Homebrew on Intel
	"/opt/local/lib/postgresql*/bin",     // MacPorts
	"/Applications/Postgres.app/*/*/bin", // Postgres.app
}

// binaries is a directory that contains postgres and initdb.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// finder looks for server binaries. Its functions are fields, so that a test can replace them and
// describe another machine.
type finder struct {
	lookPath func(name string) (string, error)
	glob     func(pattern string) ([]string, error)
	version  func(ctx context.Context, postgres string) (string, error)
}

func newFinder() finder {
	return finder{lookPath: lookReal, glob: filepath.Glob, version: askVersion}
}

// find returns the usable binaries in the order in which to try them: first the binaries on PATH,
// then the others, newest first. The error says why find left out other binaries. If there are no
// usable binaries, the error is not nil.
func (f finder) find(ctx context.Context) ([]binaries, error) {
	var found []binaries
	var errs []error
	seen := map[string]bool{}
	consider := func(postgres string) {
		path, err := f.lookPath(postgres)
		dir := filepath.Dir(path)
		if err != nil || seen[dir] {
			return
		}
		seen[dir] = true
		if b, err := f.inspect(ctx, dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
		} else {
			found = append(found, b)
		}
	}

	consider("postgres")
	onPath := len(found)
	for _, pattern := range wellKnown {
		dirs, err := f.glob(filepath.Join(pattern, "postgres"))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", pattern, err))
		}
		for _, path := range dirs {
			consider(path)
		}
	}
	slices.SortStableFunc(found[onPath:], func(a, b binaries) int { return cmp.Compare(b.major, a.major) })

	if len(seen) == 0 {
		errs = append(errs, errors.New("no postgres on PATH or where packages put it"))
	}
	return found, errors.Join(errs...)
}

func (f finder) inspect(ctx context.Context, dir string) (binaries, error) {
	b := binaries{dir: dir}
	if _, err := f.lookPath(b.path("initdb")); err != nil {
		return b, fmt.Errorf("postgres without initdb: %w", err)
	}
	line, err := f.version(ctx, b.path("postgres"))
	if err != nil {
		return b, fmt.Errorf("ask version: %w", err)
	}
	if b.major, err = majorVersion(line); err != nil {
		return b, err
	}
	return b, requireVersion(b.major)
}

func requireVersion(major int) error {
	if major < oldest {
		return fmt.Errorf("version %d is too old, want %d or later", major, oldest)
	}
	return nil
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorVersion reads a line like "postgres (PostgreSQL) 17.5 (Debian …)".
func majorVersion(line string) (int, error) {
	match := versionPattern.FindStringSubmatch(line)
	if match == nil {
		return 0, fmt.Errorf("no version in %q", line)
	}
	return strconv.Atoi(match[1])
}

func askVersion(ctx context.Context, postgres string) (string, error) {
	out, err := exec.CommandContext(ctx, postgres, "--version").Output()
	return string(out), err
}

// lookReal finds an executable and resolves links. So each directory has only one name, and the
// method find looks for initdb in the real directory of postgres.
func lookReal(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}
