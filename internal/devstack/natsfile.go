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

// The files in the directory of a NATS server.
const (
	natsConfFile = "nats.conf"
	natsLogFile  = "nats.log"
	natsPIDFile  = "nats.pid"
)

// natsFile is the configuration file of a NATS server.
type natsFile struct {
	cfg    NATSConfig
	dir    string // the path of the directory for this process
	seen   string // the path of the same directory for the server
	listen string
}

// write writes the file with the given options, which only the server checks.
func (f *natsFile) write(options string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "server_name: %q\nlisten: %q\n", f.cfg.Name, f.listen)
	fmt.Fprintf(&text, "store_dir: %q\nlog_file: %q\n", f.seen, f.seen+"/"+natsLogFile)
	if f.seen == f.dir { // not in a container, whose process ids mean nothing to the watchdog
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

// reload writes the file with new options and calls the function tell, which must make the server
// read the file again.
func (f *natsFile) reload(options string, tell func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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

// log returns the text of the server's log.
func (f *natsFile) log() string {
	text, _ := os.ReadFile(filepath.Join(f.dir, natsLogFile)) // if the server did not start, there is no file
	return string(text)
}

// greet returns nil if the server of this file accepts connections at the given address. If the
// file does not disable JetStream, the server must also run JetStream.
func (f *natsFile) greet(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the error does not matter: this connection wrote nothing
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
