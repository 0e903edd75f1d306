package devstack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The files in the directory of a server that is not part of this process.
const (
	natsConfFile = "nats.conf"
	natsLogFile  = "nats.log"
	natsPIDFile  = "nats.pid"
)

// natsFile is the configuration file of a server that is not part of this process.
type natsFile struct {
	cfg       NATSConfig
	dir       string // the directory, for this process
	seen      string // the path of the same directory for the server
	listen    string
	advertise string // the address for clients, if it differs from the address on which the server listens
}

// write writes the file with the given options. Only the server can say whether they are
// valid.
func (f *natsFile) write(options string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "server_name: %q\nlisten: %q\n", f.cfg.Name, f.listen)
	if f.advertise != "" {
		fmt.Fprintf(&text, "client_advertise: %q\n", f.advertise)
	}
	fmt.Fprintf(&text, "store_dir: %q\nlog_file: %q\n", f.seen, f.seen+"/"+natsLogFile)
	if f.seen == f.dir { // in a container, the file would belong to the first process
		fmt.Fprintf(&text, "pid_file: %q\n", f.dir+"/"+natsPIDFile)
	}
	switch {
	case f.cfg.plain():
	case f.cfg.Durable:
		text.WriteString("jetstream { sync_interval: always }\n")
	default:
		text.WriteString("jetstream: enabled\n")
	}
	text.WriteString(options + "\n")
	if err := os.WriteFile(filepath.Join(f.dir, natsConfFile), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// reload gives the server new options. tell must make the server read the file again.
func (f *natsFile) reload(options string, tell func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerPatience)
	defer cancel()
	if err := f.write(options); err != nil {
		return err
	}
	before := len(f.log())
	if err := tell(); err != nil {
		return err
	}
	for {
		news := f.log()[before:]
		switch {
		case strings.Contains(news, "Reloaded server configuration"):
			f.cfg.Options = options
			return nil
		case strings.Contains(news, "Failed to reload server configuration"):
			return errors.Join(fmt.Errorf("the server refused\n%s", lastLines(news)), f.write(f.cfg.Options))
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the server to reload: %w", err)
		}
	}
}

// log returns what the server has written so far.
func (f *natsFile) log() string {
	text, _ := os.ReadFile(filepath.Join(f.dir, natsLogFile)) // there is no file if the server did not start
	return string(text)
}

// greet returns nil if the server at address is the server of this file, and accepts
// connections and runs JetStream.
func (f *natsFile) greet(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing was written
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return err
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read its greeting: %w", err)
	}
	doc, ok := strings.CutPrefix(line, "INFO ")
	if !ok {
		return fmt.Errorf("%w: the server on it is no NATS server", errPortTaken)
	}
	var info struct {
		Name      string `json:"server_name"`
		JetStream bool   `json:"jetstream"`
	}
	if err := json.Unmarshal([]byte(doc), &info); err != nil {
		return fmt.Errorf("read its greeting: %w", err)
	}
	switch {
	case info.Name != f.cfg.Name:
		return fmt.Errorf("%w: the server on it is %s", errPortTaken, info.Name)
	case !info.JetStream && !f.cfg.plain():
		return errors.New("JetStream does not run")
	}
	return nil
}
