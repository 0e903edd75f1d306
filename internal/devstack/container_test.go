package devstack_test

import (
	"context"
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devstack"
)

// fakeBox is a server in no container.
type fakeBox struct{}

func (fakeBox) Image() string               { return "image:1" }
func (fakeBox) Address() string             { return "there:5432" }
func (fakeBox) Start(context.Context) error { return nil }
func (fakeBox) Stop() error                 { return nil }
func (fakeBox) Kill() error                 { return nil }
func (fakeBox) Pause() error                { return nil }
func (fakeBox) Resume() error               { return nil }
func (fakeBox) Signal(string) error         { return nil }
func (fakeBox) Close() error                { return nil }

// Servers in containers are tested in postroomtest/containers.
func TestContainerIsGivenPasswordAndSettings(t *testing.T) {
	var spec devstack.BoxSpec
	devstack.Containers.Run = func(_ context.Context, s devstack.BoxSpec) (devstack.Box, error) {
		spec = s
		return fakeBox{}, nil
	}
	defer func() { devstack.Containers.Run = nil }()
	for _, tt := range []struct {
		name    string
		cfg     devstack.Config
		want    string
		wantNot string
	}{
		{"fast", devstack.Config{MaxConnections: 7}, "-c max_connections=7 -c max_prepared_transactions=16 -c fsync=off", "nothing"},
		{"durable", devstack.Config{Durable: true}, "postgres -c max_connections=200", "fsync"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Container = true
			p, err := devstack.StartPostgres(t.Context(), tt.cfg)
			check(t, err)
			line := strings.Join(spec.Command, " ")
			if !strings.Contains(line, tt.want) || strings.Contains(line, tt.wantNot) {
				t.Errorf("command is %q, want %q and not %q", line, tt.want, tt.wantNot)
			}
			if want := "postgres://postgres:" + spec.Env["POSTGRES_PASSWORD"] + "@there:5432/"; !strings.HasPrefix(p.URL(), want) {
				t.Errorf("URL is %s, want %s…", p.URL(), want)
			}
			if p.Source() != "container image:1" || p.Hostname() != spec.Name {
				t.Errorf("source is %s, and the hostname %s", p.Source(), p.Hostname())
			}
		})
	}
}

func TestAProgramWithoutContainersSaysSo(t *testing.T) {
	_, ofPostgres := devstack.StartPostgres(t.Context(), devstack.Config{Container: true})
	_, ofNATS := devstack.StartNATS(t.Context(), devstack.NATSConfig{Container: true})
	_, ofCluster := devstack.StartNATSCluster(t.Context(), 3, devstack.NATSConfig{Container: true})
	for _, err := range []error{ofPostgres, ofNATS, ofCluster} {
		if err == nil || !strings.Contains(err.Error(), "postroomtest/containers") {
			t.Errorf("error is %v, want one that names the package to import", err)
		}
	}
}
