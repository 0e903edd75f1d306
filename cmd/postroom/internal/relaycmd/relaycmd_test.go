package relaycmd

import "testing"

// The relay chooses the window for atomic batches only if the user does not, even if the user wants
// the default of a relay without atomic batches.
func TestWindow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		args        []string
		environment string
		want        int
	}{
		{"default", nil, "", defaultWindow},
		{"atomic", []string{"--atomic"}, "", 0},
		{"atomic, with a window", []string{"--atomic", "--window", "100"}, "", 100},
		{"atomic, with the window of others", []string{"--atomic", "--window", "4096"}, "", 4096},
		{"atomic, with a window in the environment", []string{"--atomic"}, "4096", 4096},
	} {
		getenv := func(name string) string {
			if name == "POSTROOM_RELAY_WINDOW" {
				return tt.environment
			}
			return ""
		}
		w := newOptions(getenv)
		cmd := w.command(getenv)
		if err := cmd.ParseFlags(tt.args); err != nil {
			t.Fatal(err)
		}
		if err := w.complete(cmd, getenv); err != nil || w.cfg.Window != tt.want {
			t.Errorf("%s: the window is %d (%v), want %d", tt.name, w.cfg.Window, err, tt.want)
		}
	}
}
