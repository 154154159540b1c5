// SPDX-License-Identifier: Apache-2.0

package firewalld

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func source(zone, prefix string) state.ZoneSource {
	return state.ZoneSource{Zone: zone, Source: netip.MustParsePrefix(prefix)}
}

// TestAgainstFirewalld adds addresses to zones of a real firewalld, which is reloaded, stopped and started meanwhile.
func TestAgainstFirewalld(t *testing.T) {
	fw := nettest.Firewalld(t, nil)
	c := New(Socket)
	t.Cleanup(func() { _ = c.Close() })
	want := []state.ZoneSource{
		source("trusted", "10.9.0.1/32"), source("trusted", "fd00:9::1/128"), source("drop", "10.9.0.2/32"),
	}
	for range 2 {
		if err := c.Apply(t.Context(), want); err != nil {
			t.Fatal(err)
		}
	}
	zones := func() []string {
		t.Helper()
		var out []string
		for _, z := range want {
			zone, err := c.Zone(t.Context(), z)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, zone)
		}
		return out
	}
	if got := zones(); !slices.Equal(got, []string{"trusted", "trusted", "drop"}) {
		t.Errorf("zones %q", got)
	}
	if got := fw.Cmd("--zone=trusted", "--list-sources"); got != "10.9.0.1/32 fd00:9::1/128" {
		t.Errorf("firewalld has %q", got)
	}
	if err := c.Apply(t.Context(), []state.ZoneSource{source("public", "10.9.0.1/32")}); !errors.Is(err, ErrForeign) ||
		!strings.Contains(err.Error(), "zone public source 10.9.0.1/32") {
		t.Errorf("an address in another zone: %v", err)
	}
	if err := c.Apply(t.Context(), []state.ZoneSource{source("nowhere", "10.9.0.9/32")}); err == nil ||
		!strings.Contains(err.Error(), "nowhere") {
		t.Errorf("no such zone: %v", err)
	}
	fw.Cmd("--reload")
	if got := zones(); !slices.Equal(got, []string{"", "", ""}) {
		t.Errorf("a reload forgets what was added, but: %q", got)
	}
	if err := c.Apply(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Remove(t.Context(), append(want, source("nowhere", "10.9.0.8/32"))); err != nil {
			t.Fatal(err)
		}
	}
	if got := zones(); !slices.Equal(got, []string{"", "", ""}) {
		t.Errorf("after Remove: %q", got)
	}

	fw.Stop()
	becomes(t, c, false)
	if err := c.Apply(t.Context(), want); !errors.Is(err, ErrAbsent) {
		t.Errorf("without firewalld: %v", err)
	}
	if err := c.Remove(t.Context(), want); err != nil {
		t.Errorf("Remove without firewalld: %v", err)
	}
	fw.Start()
	becomes(t, c, true)
	if err := c.Apply(t.Context(), want); err != nil {
		t.Error(err)
	}
}

// becomes waits until the bus has notified the client.
func becomes(t *testing.T, c *Client, want bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got, err := c.Running(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("running %t after a minute, want %t", got, want)
		}
	}
}

func TestWithoutBus(t *testing.T) {
	for name, path := range map[string]string{
		"nothing": filepath.Join(t.TempDir(), "bus"), "a file": filepath.Join(t.TempDir(), "file"),
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			if name == "a file" {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := New(path)
			if running, err := c.Running(t.Context()); running || err != nil {
				t.Errorf("running %t, %v", running, err)
			}
			if err := c.Apply(t.Context(), []state.ZoneSource{source("trusted", "10.9.0.1/32")}); !errors.Is(err, ErrAbsent) {
				t.Errorf("Apply: %v", err)
			}
			if err := c.Remove(t.Context(), []state.ZoneSource{source("trusted", "10.9.0.1/32")}); err != nil {
				t.Errorf("Remove: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
