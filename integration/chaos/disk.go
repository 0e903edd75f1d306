//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// disk is where a server stores: a file system of its own where that can be had, so
// that it can be full.
type disk struct {
	dir   string
	own   bool
	bytes int64
}

// newDisk makes one.
func newDisk(what string, bytes int64) (*disk, error) {
	dir, err := os.MkdirTemp("", "postroom-chaos-"+what+"-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // PostgreSQL may run as somebody else
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d := &disk{dir: dir, bytes: bytes}
	if runtime.GOOS == "linux" && os.Geteuid() == 0 {
		d.own = mount("-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=755", bytes), "tmpfs", dir) == nil
	}
	return d, nil
}

func mount(args ...string) error {
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// fill has no room left on it, or next to none: it is written to meanwhile.
func (d *disk) fill() (err error) {
	for spare := range int64(20) {
		taken, failed := used(d.dir)
		if failed != nil {
			return failed
		}
		if err = d.resize(taken + spare<<18); err == nil {
			return nil
		}
	}
	return err
}

// free has room again.
func (d *disk) free() error { return d.resize(d.bytes) }

func (d *disk) resize(bytes int64) error {
	return mount("-o", fmt.Sprintf("remount,size=%d", bytes), d.dir)
}

// close removes it.
func (d *disk) close() error {
	var err error
	if d.own {
		if out, failed := exec.Command("umount", "-l", d.dir).CombinedOutput(); failed != nil {
			err = fmt.Errorf("umount: %w: %s", failed, out)
		}
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
