package containers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/moby/moby/client"
)

// Labels of a container or a network: the machine and the id of the process that created it.
const (
	hostLabel = "postroom.containers.host"
	pidLabel  = "postroom.containers.pid"
)

// watchVariable is set in a watchdog. It has the id of the process whose containers the watchdog
// removes.
const watchVariable = "POSTROOM_CONTAINERS_WATCHDOG"

func init() {
	if os.Getenv(watchVariable) != "" {
		if err := watch(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// watchdog is the watchdog's standard input. The variable keeps it open until this process ends.
var watchdog io.WriteCloser //nolint:unused // a reference keeps the pipe open

// startWatchdog starts this program once more. The second process removes the containers and
// networks of this process when this process has ended, even if it was killed.
func startWatchdog() (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start watchdog: %w", err)
	}
	child := exec.Command(self)
	child.Dir = os.TempDir() // the working directory may be removed
	child.Env = append(os.Environ(), watchVariable+"="+strconv.Itoa(os.Getpid()))
	if watchdog, err = child.StdinPipe(); err == nil {
		err = child.Start()
	}
	if err != nil {
		return fmt.Errorf("start watchdog: %w", err)
	}
	return nil
}

// watch waits for the end of standard input, and then does the work of the watchdog.
func watch() error {
	signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM) // Ctrl-C is for the tests
	of, err := strconv.Atoi(os.Getenv(watchVariable))
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d, err := connect(ctx)
	if err != nil {
		return err
	}
	for ctx.Err() == nil { // Docker may still be making or removing a container, which keeps a network
		if err = d.remove(ctx, func(pid int) bool { return pid == of }); err == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
	return err
}

// ownLabels returns labels that name this process.
func ownLabels() map[string]string {
	host, _ := os.Hostname() // if this fails, all machines without a hostname count as the same machine
	return map[string]string{hostLabel: host, pidLabel: strconv.Itoa(os.Getpid())}
}

// remove removes the containers and networks of this machine's processes for which the function of
// returns true.
func (d *daemon) remove(ctx context.Context, of func(pid int) bool) (err error) {
	defer func() { err = errors.Join(err, d.client.Close()) }() // it closes only idle connections
	filters := client.Filters{}.Add("label", hostLabel+"="+ownLabels()[hostLabel], pidLabel)
	theirs := func(labels map[string]string) bool {
		pid, err := strconv.Atoi(labels[pidLabel])
		return err == nil && of(pid)
	}
	boxes, err := d.client.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, b := range boxes.Items {
		if theirs(b.Labels) {
			err = errors.Join(err, d.removeContainer(ctx, b.ID))
		}
	}
	networks, fault := d.client.NetworkList(ctx, client.NetworkListOptions{Filters: filters})
	if fault != nil {
		return errors.Join(err, fmt.Errorf("list networks: %w", fault))
	}
	for _, n := range networks.Items {
		if theirs(n.Labels) {
			err = errors.Join(err, d.removeNetwork(ctx, n.ID))
		}
	}
	return err
}
