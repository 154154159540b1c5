// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestTakeOver is the way of docs/calico.md, from a cluster in which Calico serves to one in which nothing of it is left.
func TestTakeOver(t *testing.T) {
	c := newCluster(t, map[string]string{"CALICO_IPV4POOL_VXLAN": "Always", "CALICO_IPV4POOL_IPIP": "Never"})
	c.Do(http.MethodPost, "/api/v1/namespaces", fields{"metadata": fields{"name": namespace}})
	c.Do(http.MethodPost, "/apis/networking.k8s.io/v1/namespaces/"+namespace+"/networkpolicies", fields{
		"metadata": fields{"name": "friends"},
		"spec": fields{
			"podSelector": fields{"matchLabels": fields{"app": "db"}}, "policyTypes": []string{"Ingress"},
			"ingress": []fields{{"from": []fields{{"podSelector": fields{"matchLabels": fields{"app": "friend"}}}}}},
		},
	})
	n1, n2 := c.nodes[0], c.nodes[1]
	for _, n := range c.nodes {
		n.calicos()
	}
	db, near := n1.pod("db", fields{"app": "db"}), n1.pod("near", fields{"app": "friend"})
	far, other := n2.pod("far", fields{"app": "friend"}), n2.pod("other", fields{"app": "other"})
	for _, p := range []*pod{near, far} {
		c.until(p.name+" reaches db", func() bool { return p.reaches(db) })
	}
	c.until("other does not reach db", func() bool { return !other.reaches(db) })

	streams := []*stream{far.streamTo(db), near.streamTo(far), far.streamTo(near)}
	denied := other.knocksAt(db)
	report := func(when string) {
		t.Helper()
		for _, s := range streams {
			t.Logf("%s: %s: %d sent, %d lost, nothing came for %s at most", when, s.name, s.sent.Load(), s.lost(), s.gap())
		}
		t.Logf("%s: %s: %d sent, %d arrived", when, denied.name, denied.sent.Load(), denied.arrived.Load())
	}
	report("Calico serves")
	for _, n := range c.nodes {
		n.felix.end(syscall.SIGTERM)
	}
	report("Felix has ended")
	t.Logf("\n%s", c.weft("ipam", "import", "--from", "calico"))
	for _, n := range c.nodes {
		n.weft()
	}
	report("weft has begun")
	for _, cmd := range []string{"ip -d link", "ip route show table all", "ip rule", "iptables-save", "ipset list -n", "nft list tables", "cat /proc/net/xt_MASQUERADE"} {
		out, err := nettest.Try(n1.ns, strings.Fields(cmd)...)
		t.Logf("%s: %v\n%s", cmd, err, out)
	}
	time.Sleep(3 * time.Second)
	b, _ := os.ReadFile(n1.agent.log)
	t.Logf("%s", b)
}

// reaches tells whether a ping is answered.
func (p *pod) reaches(to *pod) bool {
	_, err := nettest.Try(p.ns, "ping", "-c1", "-W1", to.addr.String())
	return err == nil
}

// weft runs a verb as an administrator.
func (c *cluster) weft(args ...string) string {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(nettest.Programs(c.t), "weft"), append(args, "--kubeconfig", c.Kubeconfig(c.URL, ""))...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := c.hub.Do(cmd.Run); err != nil {
		c.t.Fatalf("weft %v: %v\n%s", args, err, out.String())
	}
	return out.String()
}

// weft starts weft's agent on the node.
func (n *node) weft() {
	c := n.c
	c.t.Helper()
	file, ready := filepath.Join(n.dir, "weft.yaml"), filepath.Join(n.dir, "ready")
	text := fmt.Sprintf("node: %s\nsocket: %s\nstateDir: %s\nreadyFile: %s\nkubernetes: {kubeconfig: %s}\nnetwork: {mode: cluster, addresses: pools}\ninstall: {confDir: %s}\n",
		n.name, filepath.Join(n.dir, "agent.sock"), filepath.Join(n.dir, "state"), ready, c.Kubeconfig(c.URL, ""), n.confDir())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	n.agent = n.start("agent", os.Environ(), filepath.Join(nettest.Programs(c.t), "weft"), "agent", "--config", file)
	c.until("the agent has put its network in place", func() bool {
		n.agent.alive()
		_, err := os.Stat(filepath.Join(n.confDir(), "00-weft.conflist"))
		return err == nil && !strings.Contains(n.name, "/")
	})
}
