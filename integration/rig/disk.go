package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// Disk is the storage of a server. If possible it is a separate file system, so that the rig can
// fill it.
type Disk struct {
	Dir   string
	Own   bool // it is a separate file system, which can be filled
	bytes int64
}

// NewDisk makes a disk of the given size. If it cannot be a separate file system, it is a
// directory, and Own is false.
func NewDisk(what string, bytes int64) (*Disk, error) {
	dir, err := os.MkdirTemp("", "postroom-chaos-"+what+"-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // PostgreSQL may run as another user
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d := &Disk{Dir: dir, bytes: bytes}
	if runtime.GOOS == "linux" && os.Geteuid() == 0 {
		d.Own = mount("-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=755", bytes), "tmpfs", dir) == nil
	}
	return d, nil
}

func mount(args ...string) error {
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// Fill leaves no room on the disk, or very little. It cannot always leave none, because a server
// writes to the disk meanwhile.
func (d *Disk) Fill() (err error) {
	for spare := range int64(20) {
		taken, failed := used(d.Dir)
		if failed != nil {
			return failed
		}
		if err = d.resize(taken + spare<<18); err == nil {
			return nil
		}
	}
	return err
}

// Free makes room again.
func (d *Disk) Free() error { return d.resize(d.bytes) }

func (d *Disk) resize(bytes int64) error {
	return mount("-o", fmt.Sprintf("remount,size=%d", bytes), d.Dir)
}

// Close removes the disk.
func (d *Disk) Close() error {
	var err error
	if d.Own {
		if out, failed := exec.Command("umount", "-l", d.Dir).CombinedOutput(); failed != nil {
			err = fmt.Errorf("umount: %w: %s", failed, out)
		}
	}
	return errors.Join(err, os.RemoveAll(d.Dir))
}
