// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/nettest"
)

// TestCalicoPluginWithWeftIPAM: Calico's plugin stays in the runtime's directory and executes calico-ipam, which is a
// link to weft-cni: the agent allocates the address, Calico's plugin creates the interface.
func TestCalicoPluginWithWeftIPAM(t *testing.T) {
	c := newCluster(t, map[string]string{"CALICO_IPV4POOL_VXLAN": "Always", "FELIX_IPTABLESBACKEND": "nft"})
	c.Do(http.MethodPost, "/api/v1/namespaces", fields{"metadata": fields{"name": namespace}})
	for _, n := range c.nodes {
		n.installCalicoConfig()
		n.felix.stop(syscall.SIGTERM)
	}
	t.Logf("weft ipam import --from calico\n%s", c.weft("ipam", "import", "--from", "calico"))
	for _, n := range c.nodes {
		n.startAgent()
		c.until(n.name+" has its mesh", func() bool {
			_, err := os.Stat(filepath.Join(n.dir, "state", "mesh.json"))
			return err == nil
		})
		c.until(n.name+" is clean", func() bool { return n.clean() })
	}
	bin := t.TempDir()
	original := filepath.Join(bin, "calico")
	if err := os.Symlink(filepath.Join(c.calico, "calico"), original); err != nil {
		t.Fatal(err)
	}
	out, err := nettest.Try(c.nodes[0].ns, filepath.Join(nettest.Programs(t), "weft"), "install", "--cni-bin-dir", bin,
		"--agent-plugins")
	if err != nil || !strings.Contains(out, "installed "+filepath.Join(bin, "calico-ipam")) ||
		!strings.Contains(out, "kept      "+original) {
		t.Fatalf("weft install: %v\n%s", err, out)
	}

	n1, n2 := c.nodes[0], c.nodes[1]
	list := n1.calicoConfig()
	other := n2.pod("other", nil)
	for round := range 2 {
		p := n1.podWith(fmt.Sprint("own", round), nil, list, bin)
		c.until("other reaches "+p.name, func() bool { return other.reaches(p) })
		c.until(p.name+" reaches other", func() bool { return p.reaches(other) })
		if out := nettest.Run(t, n1.ns, "ip", "-br", "link"); !strings.Contains(out, "cali") {
			t.Errorf("Calico's plugin has created no interface:\n%s", out)
		}
		held := c.weft("ipam", "show", p.addr.String())
		if !strings.Contains(held, namespace+"/"+p.name) {
			t.Errorf("weft ipam show does not print the owner of %s:\n%s", p.addr, held)
		}
		err := p.n.ns.Do(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return p.cni.CheckNetworkList(ctx, p.list, p.conf)
		})
		if err != nil {
			t.Errorf("CHECK of %s: %v", p.name, err)
		}
		addr := p.addr
		p.detach(list)
		c.until("the address of "+p.name+" is released", func() bool {
			return !strings.Contains(c.weft("ipam", "show", addr.String()), namespace+"/"+p.name)
		})
	}
	c.until("there are no leftovers", func() bool { return strings.Contains(c.weft("ipam", "check"), " 0 findings") })
	n1.agent.stop(syscall.SIGTERM)
	l, err := ledger.Open(filepath.Join(n1.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if list, err := l.List(); err != nil || len(list) != 0 {
		t.Errorf("the agent's ledger has %d records, %v", len(list), err)
	}
}

// calicoConfig returns Calico's configuration with the socket of this node's agent.
func (n *node) calicoConfig() *libcni.NetworkConfigList {
	t := n.c.t
	t.Helper()
	var conf struct {
		Name    string   `json:"name"`
		Version string   `json:"cniVersion"`
		Plugins []fields `json:"plugins"`
	}
	b, err := os.ReadFile(filepath.Join(n.confDir(), "10-calico.conflist"))
	if err == nil {
		err = json.Unmarshal(b, &conf)
	}
	if err != nil {
		t.Fatal(err)
	}
	conf.Version = "1.0.0"
	conf.Plugins[0]["socket"] = filepath.Join(n.dir, "agent.sock")
	if b, err = json.Marshal(conf); err != nil {
		t.Fatal(err)
	}
	list, err := libcni.ConfListFromBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
