// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// TestKeyFile: the key file is created once, also by concurrent agents, with mode 0600; flannel's is read; an invalid
// one is reported and not changed.
func TestKeyFile(t *testing.T) {
	learn := func(file string) (mesh.WireGuardLearned, error) {
		var l mesh.WireGuardLearned
		got, err := newRunner(t).Learn(t.Context(), mesh.Config{
			Backend: "wireguard", WireGuard: mesh.WireGuard{KeyFile: file},
		})
		if err == nil {
			err = json.Unmarshal([]byte(got["wireguard"]), &l)
		}
		return l, err
	}
	file := filepath.Join(t.TempDir(), "run", "flannel", "wgkey")
	var wait sync.WaitGroup
	keys := make([]string, 8)
	for i := range keys {
		wait.Go(func() {
			l, err := learn(file)
			if err != nil {
				t.Error(err)
			}
			keys[i] = l.PublicKey
		})
	}
	wait.Wait()
	for _, k := range keys {
		if k != keys[0] || len(k) != 44 {
			t.Errorf("keys differ: %q", keys)
		}
	}
	if f, err := os.Stat(file); err != nil || f.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v %v", f, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("something is left beside it: %v", left)
	}
	// A key pair of RFC 7748, 6.1.
	theirs := filepath.Join(t.TempDir(), "theirs")
	if err := os.WriteFile(theirs, []byte("dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="), 0o400); err != nil {
		t.Fatal(err)
	}
	if l, err := learn(theirs); err != nil || l.PublicKey != "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=" {
		t.Errorf("flannel's key: %+v %v", l, err)
	}
	wrong := filepath.Join(t.TempDir(), "wrong")
	for _, text := range []string{"", "not-a-key-but-secret", "dwdtCnMYpX08FsFyUbJm"} {
		if err := os.WriteFile(wrong, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := learn(wrong)
		if err == nil || text != "" && strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), wrong) {
			t.Errorf("key file with %q: %v", text, err)
		}
		if b, _ := os.ReadFile(wrong); string(b) != text {
			t.Errorf("key file with %q is %q now", text, b)
		}
	}
}

// IPv4 in IPv4, and directly where both are on one network.
func TestIPIP(t *testing.T) {
	nettest.Need(t, "ipip")
	c := newCluster(t, mesh.Config{Backend: "ipip"}, mesh.Config{Backend: "ipip"}, mesh.Config{
		Backend: "ipip", IPIP: mesh.IPIP{DirectRouting: true},
	})
	for _, m := range c.nodes {
		m.addrs = m.addrs[:1]
	}
	c.allReach()
	n1 := c.nodes[0]
	for _, harm := range []string{
		"ip link del flannel.ipip", "ip link set flannel.ipip down", "ip -4 addr flush dev flannel.ipip",
		"ip route flush proto 119",
	} {
		c.repaired(n1, harm)
	}
	if out := nettest.Run(t, n1.node, "ip", "route"); !strings.Contains(out,
		"10.244.2.0/24 via 192.168.0.2 dev flannel.ipip") || !strings.Contains(out, "onlink") {
		t.Errorf("n1:\n%s", out)
	}
	if out := nettest.Run(t, c.nodes[2].node, "ip", "route"); !strings.Contains(out,
		"10.244.1.0/24 via 192.168.0.1 dev eth0") {
		t.Errorf("n3 does not reach n1 directly:\n%s", out)
	}
}
