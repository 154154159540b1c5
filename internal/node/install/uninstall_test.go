// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"path/filepath"
	"testing"
)

// TestOtherNetwork: a network counts only if its plugins are there without weft; flannel's configuration on a node that
// never had flannel is weft's.
func TestOtherNetwork(t *testing.T) {
	const flannel = `{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"},{"type":"portmap"}]}`
	for name, x := range map[string]struct {
		vendors    []string // programs of others
		kept       []string // programs of others in whose place weft's are
		other, own bool
	}{
		"weft's only":          {own: true},
		"some are missing":     {vendors: []string{"loopback", "flannel", "bridge"}, own: true},
		"all of flannel":       {vendors: []string{"loopback", "flannel", "bridge", "host-local", "portmap"}, other: true},
		"one of them replaced": {vendors: []string{"loopback", "flannel", "bridge", "portmap"}, kept: []string{"host-local"}, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{BinDir: t.TempDir(), ConfDir: t.TempDir()}
			put(t, filepath.Join(c.ConfDir, flannelName), flannel)
			for _, p := range x.vendors {
				put(t, filepath.Join(c.BinDir, p), "a vendor's")
			}
			for _, p := range x.kept {
				put(t, filepath.Join(c.BinDir, p+original), "a vendor's")
			}
			for _, p := range []string{"loopback", "flannel", "bridge", "host-local", "portmap"} {
				_ = os.Symlink(pluginName, filepath.Join(c.BinDir, p)) // where there is none
			}
			other, err := OtherNetwork(c)
			if err != nil || (other == flannelName) != x.other {
				t.Errorf("OtherNetwork() = %q, %v, want one: %t", other, err, x.other)
			}
			own, network, err := OwnFlannel(c)
			if err != nil || (own != "") != x.own || (network == "cbr0") != x.own {
				t.Errorf("OwnFlannel() = %q, %q, %v, want one: %t", own, network, err, x.own)
			}
		})
	}
	if other, err := OtherNetwork(Config{ConfDir: filepath.Join(t.TempDir(), "none")}); other != "" || err != nil {
		t.Errorf("without a directory: %q, %v", other, err)
	}
}
