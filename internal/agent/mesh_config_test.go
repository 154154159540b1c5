// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/weft-net/weft/internal/config"
)

// The interface to the other nodes is the one that is named, also where flannel's configuration says the rest.
func TestMeshInterface(t *testing.T) {
	for name, want := range map[string]string{"auto": "", "eth1": "eth1"} {
		for _, mode := range []config.Mode{config.ModeNone, config.ModeCluster, config.ModeFlannel} {
			c := config.Default()
			c.Network.Mode, c.Network.Interface = mode, name
			a := &agent{cfg: Config{Network: c.Network, Flannel: c.Flannel}}
			if got := a.meshConfig().Interface; got != want {
				t.Errorf("mode %s, interface %s: the mesh is told %q", mode, name, got)
			}
		}
	}
}
