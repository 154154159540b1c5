// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/plan/mesh"
)

// TestStatusFile: the file, which is written element by element, is the status in JSON.
func TestStatusFile(t *testing.T) {
	full := Status{
		Self: `"peers":null`, Time: time.Unix(0, 0).UTC(), Error: `"fragments":null`, Checksums: map[string]string{"a": "whole"},
		Fragments: []FragmentStatus{{Owner: "mesh/node", OK: true}, {Owner: "mesh/peer/b", Error: "why"}},
		Topology: mesh.Topology{
			Self: "a", Peers: []*mesh.Peer{{Name: "b"}, {Name: "c"}}, Tunnels: []mesh.Tunnel{{Peers: []mesh.TunnelPeer{{Node: "b"}}}},
		},
	}
	empty := full
	empty.Fragments, empty.Topology.Peers = []FragmentStatus{}, nil
	for _, s := range []Status{full, empty, {}} {
		path := filepath.Join(t.TempDir(), "mesh.json")
		if err := s.write(path); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(s)
		if err != nil || string(got) != string(want)+"\n" {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
}
