// SPDX-License-Identifier: Apache-2.0

package meshconf

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/config"
)

// TestMeshInterface: the uplink is the configured one, even if flannel's configuration has the rest.
func TestMeshInterface(t *testing.T) {
	for name, want := range map[string]string{"auto": "", "eth1": "eth1"} {
		for _, mode := range []config.Mode{config.ModeNone, config.ModeCluster, config.ModeFlannel} {
			c := config.Default()
			c.Network.Mode, c.Network.Interface = mode, name
			s := New(Config{Network: c.Network, Flannel: c.Flannel, Random: strings.NewReader("")})
			if got := s.Mesh().Interface; got != want {
				t.Errorf("mode %s, interface %s: the mesh is told %q", mode, name, got)
			}
		}
	}
}

// TestVTEPOfEachMode: a node publishes its VtepMAC in a directory, unless it is configured to publish nothing.
func TestVTEPOfEachMode(t *testing.T) {
	for _, mode := range []config.Mode{config.ModeNone, config.ModeCluster, config.ModeFlannel, config.ModeMultus} {
		for _, publish := range []bool{true, false} {
			c := config.Default()
			c.Network.Mode, c.Network.Encapsulation, c.Flannel.Publish = mode, "vxlan", publish
			s := New(Config{
				Network: c.Network, Flannel: c.Flannel, Directory: true, Random: strings.NewReader("0123456789abcdef"),
			})
			want := publish && mode != config.ModeMultus
			if got := s.Mesh(); (got.VTEPSeed != "") != want || want && !got.PublishVTEPOnly || s.PublishesVTEP() != want {
				t.Errorf("mode %s, publish %t: seed %q, alone %t", mode, publish, got.VTEPSeed, got.PublishVTEPOnly)
			}
		}
	}
}
