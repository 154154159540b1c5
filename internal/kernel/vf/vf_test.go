// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestFind reads a host whose card 0000:03:00.0 has two functions; 0000:04:00.0 is another card, and the third one has
// no kernel driver.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{
		"0000:03:00.0/net/ens1f0", "0000:03:02.0", "0000:03:02.1", "0000:04:00.0/net/ens2", "0000:05:00.0", "0000:05:02.0",
	} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		"0000:03:00.0/virtfn0": "../0000:03:02.0", "0000:03:00.0/virtfn1": "../0000:03:02.1",
		"0000:03:02.0/physfn": "../0000:03:00.0",
		"0000:03:02.1/physfn": "../0000:03:00.0", "0000:05:02.0/physfn": "../0000:05:00.0",
	} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	for pci, want := range map[string]Function{"0000:03:02.0": {"ens1f0", 0}, "0000:03:02.1": {"ens1f0", 1}} {
		if got, err := Find(dir, pci); err != nil || got != want {
			t.Errorf("%s: %+v, %v", pci, got, err)
		}
	}
	for _, pci := range []string{"0000:04:00.0", "0000:05:02.0", "0000:09:00.0"} {
		if got, err := Find(dir, pci); !errors.Is(err, ErrNoPhysicalFunction) {
			t.Errorf("%s: %+v, %v", pci, got, err)
		}
	}
}

// TestDisable: a card without functions has none to disable, and neither has a missing one.
func TestDisable(t *testing.T) {
	nettest.Need(t, "veth")
	nettest.Run(t, nil, "ip", "link", "add", "card", "type", "veth", "peer", "name", "wire")
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "card") })
	if changed, err := (Function{"card", 0}).Disable(true); changed || !errors.Is(err, ErrNoPhysicalFunction) {
		t.Errorf("%t, %v", changed, err)
	}
	if changed, err := (Function{"none", 0}).Disable(true); changed || err == nil {
		t.Errorf("%t, %v", changed, err)
	}
}
