// SPDX-License-Identifier: Apache-2.0

package meshconf

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/config"
)

// The interface to the other nodes is the one that is named, also where flannel's configuration says the rest.
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

// Wherever nodes find each other in a directory, a node says its VtepMAC there, unless it is to publish nothing.
func TestVtepOfEachMode(t *testing.T) {
	for _, mode := range []config.Mode{config.ModeNone, config.ModeCluster, config.ModeFlannel, config.ModeMultus} {
		for _, publish := range []bool{true, false} {
			c := config.Default()
			c.Network.Mode, c.Network.Encapsulation, c.Flannel.Publish = mode, "vxlan", publish
			s := New(Config{
				Network: c.Network, Flannel: c.Flannel, Directory: true, Random: strings.NewReader("0123456789abcdef"),
			})
			want := publish && mode != config.ModeMultus
			if got := s.Mesh(); (got.VtepSeed != "") != want || want && !got.VtepAlone || s.PublishesVtep() != want {
				t.Errorf("mode %s, publish %t: seed %q, alone %t", mode, publish, got.VtepSeed, got.VtepAlone)
			}
		}
	}
}
