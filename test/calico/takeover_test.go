// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestMigration follows docs/tasks/migrate-from-calico.md, from a cluster with Calico to one without anything of it.
func TestMigration(t *testing.T) {
	for name, conf := range map[string]map[string]string{
		"vxlan iptables-legacy": {"CALICO_IPV4POOL_VXLAN": "Always", "FELIX_IPTABLESBACKEND": "legacy"},
		"vxlan iptables-nft":    {"CALICO_IPV4POOL_VXLAN": "Always", "FELIX_IPTABLESBACKEND": "nft"},
		"dual nft": {
			"CALICO_IPV4POOL_VXLAN": "Always", "CALICO_IPV6POOL_VXLAN": "Always", "CALICO_IPV6POOL_CIDR": "fd10:244::/64",
			"FELIX_IPV6SUPPORT": "true",
			"IP6":               "autodetect", "FELIX_IPTABLESBACKEND": "nft",
		},
		"subnet nft": {"CALICO_IPV4POOL_VXLAN": "CrossSubnet", "FELIX_NFTABLESMODE": "Enabled"},
	} {
		t.Run(name, func(t *testing.T) { migrate(newCluster(t, conf)) })
	}
}

// maxLost is the number of datagrams in a fifth of a second. Usually none is lost.
const maxLost = 40

func migrate(c *cluster) {
	t := c.t
	c.Do(http.MethodPost, "/api/v1/namespaces", fields{"metadata": fields{"name": namespace}})
	c.Do(http.MethodPost, "/apis/networking.k8s.io/v1/namespaces/"+namespace+"/networkpolicies", fields{
		"metadata": fields{"name": "friends"},
		"spec": fields{
			"podSelector": fields{"matchLabels": fields{"app": "db"}}, "policyTypes": []string{"Ingress"},
			"ingress": []fields{{"from": []fields{{"podSelector": fields{"matchLabels": fields{"app": "friend"}}}}}},
		},
	})
	n1, n2 := c.nodes[0], c.nodes[1]
	calicoLists := map[*node]*libcni.NetworkConfigList{}
	for _, n := range c.nodes {
		n.installCalicoConfig()
		calicoLists[n] = n.network()
	}
	db, near := n1.pod("db", fields{"app": "db"}), n1.pod("near", fields{"app": "friend"})
	far, other := n2.pod("far", fields{"app": "friend"}), n2.pod("other", fields{"app": "other"})
	for _, p := range []*pod{near, far} {
		c.until(p.name+" reaches db", func() bool { return p.reaches(db) })
	}
	c.until("other does not reach db", func() bool { return !other.reaches(db) })

	c.expectConnectivity(db, near, far, other)
	streams := []*stream{far.streamTo(db), near.streamTo(far), far.streamTo(near)}
	denied := other.connectionsTo(db)
	report := func(when string) {
		t.Helper()
		for _, s := range streams {
			t.Logf("%s: %s: %d sent, %d lost, longest gap %s", when, s.name, s.sent.Load(), s.lost(), s.longestGap())
		}
		t.Logf("%s: %s: %d sent, %d arrived", when, denied.name, denied.sent.Load(), denied.arrived.Load())
	}
	report("Calico is running")
	for _, n := range c.nodes {
		n.felix.stop(syscall.SIGTERM)
	}
	report("Felix is stopped")
	t.Logf("weft ipam import --from calico\n%s", c.weft("ipam", "import", "--from", "calico"))
	for _, n := range c.nodes {
		n.startAgent()
	}
	report("the agents are running")
	for _, n := range c.nodes {
		c.until(n.name+" is clean", func() bool { return n.clean("--keep-tunnels") })
	}
	report("Calico's rules and routes are removed")
	for _, n := range c.nodes {
		c.until(n.name+" is clean", func() bool { return n.clean() })
	}
	report("Calico's tunnels are removed")
	late, more := n1.pod("late", fields{"app": "other"}), n2.pod("more", fields{"app": "friend"})
	for _, pair := range [][2]*pod{
		{late, near},
		{late, far},
		{more, near},
		{more, far},
		{more, db},
		{near, late},
		{far, late},
		{near, more},
		{late, more},
	} {
		c.until(pair[0].name+" reaches "+pair[1].name, func() bool { return pair[0].reaches(pair[1]) })
	}
	if late.reaches(db) {
		t.Error("late reaches db, which the policy denies")
	}
	c.expectConnectivity(db, near, far, other, late, more)
	n1.agent.stop(syscall.SIGKILL)
	n1.startAgent()
	report("the agent of n1 was killed and restarted")
	for i := range 12 {
		c.nodes[i%2].pod(fmt.Sprint("more", i), nil)
	}
	report("more pods are attached")
	for _, s := range streams {
		s.stop()
		t.Logf("%s: %d datagrams, %d lost", s.name, s.sent.Load(), s.lost())
		if s.lost() > maxLost || s.sent.Load() < 200 {
			t.Errorf("%s: %d datagrams, %d lost", s.name, s.sent.Load(), s.lost())
		}
	}
	if denied.stop(); denied.arrived.Load() > 0 || denied.sent.Load() < 200 {
		t.Errorf("%s: %d datagrams that the policy denies, %d arrived", denied.name, denied.sent.Load(),
			denied.arrived.Load())
	}
	db.detach(calicoLists[n1])
	far.detach(calicoLists[n2])
	near.detach(n1.network())
	other.detach(n2.network())
	again := n1.pod("db", fields{"app": "db"})
	c.until("more reaches the new db", func() bool { return more.reaches(again) })
	if late.reaches(again) {
		t.Error("late reaches the new db, which the policy denies")
	}
	for _, n := range c.nodes {
		n.expectNoCalico()
	}
	t.Logf("weft ipam release --by calico\n%s", c.weft("ipam", "release", "--by", "calico"))
	if out := c.weft("ipam", "check"); !strings.Contains(out, " 0 findings") {
		t.Errorf("weft ipam check:\n%s", out)
	}
}

// expectNoCalico checks that nothing of Calico is left except for files.
func (n *node) expectNoCalico() {
	t := n.c.t
	t.Helper()
	if out := n.weft("clean", "--dry-run"); !strings.HasPrefix(out, "0 objects") {
		t.Errorf("%s: weft clean --dry-run:\n%s", n.name, out)
	}
	for _, cmd := range []string{
		"ip link", "ip route show table all", "iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save",
		"ipset list -n", "nft list tables", "ip rule",
	} {
		out, err := nettest.Try(n.ns, strings.Fields(cmd)...)
		if err != nil {
			t.Logf("%s: %v", cmd, err)
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, "calico") || strings.Contains(line, "cali:") || strings.Contains(line, "cali-") ||
				strings.Contains(line, "cali40") || strings.Contains(line, "proto 80") {
				t.Errorf("%s: %s: %s", n.name, cmd, line)
			}
		}
	}
}

// clean reports whether weft clean succeeded.
func (n *node) clean(args ...string) bool {
	t := n.c.t
	t.Helper()
	out, err := n.try(append([]string{"clean"}, args...)...)
	if err != nil {
		if !strings.Contains(out, "nothing was changed") {
			t.Fatalf("weft clean: %v\n%s", err, out)
		}
		return false
	}
	t.Logf("%s: weft clean %v\n%s", n.name, args, out)
	return true
}

// reaches reports whether a ping gets a reply.
func (p *pod) reaches(to *pod) bool {
	return p.n.c.answers(p.ns, to)
}

// answers reports whether a pod replies from each of its addresses.
func (c *cluster) answers(from *netns.NS, p *pod) bool {
	for _, a := range p.all {
		if _, err := nettest.Try(from, "ping", "-c1", "-W1", a.String()); err != nil {
			return false
		}
	}
	return true
}

// expectConnectivity checks that nodes reach pods, and pods external hosts. Other nodes than the pod's are subject to
// policy.
func (c *cluster) expectConnectivity(pods ...*pod) {
	c.t.Helper()
	for _, p := range pods {
		for _, n := range c.nodes {
			if n == p.n || p.name != "db" {
				c.until(n.name+" reaches "+p.name, func() bool { return c.answers(n.ns, p) })
			}
		}
		c.until(p.name+" reaches an external host", func() bool {
			_, err := nettest.Try(p.ns, "ping", "-c1", "-W1", hubAddr)
			return err == nil
		})
	}
}

// weft runs a command as an administrator.
func (c *cluster) weft(args ...string) string {
	c.t.Helper()
	return c.nodes[0].weft(args...)
}

// weft runs a command on the node.
func (n *node) weft(args ...string) string {
	n.c.t.Helper()
	out, err := n.try(args...)
	if err != nil {
		n.c.t.Fatalf("weft %v: %v\n%s", args, err, out)
	}
	return out
}

func (n *node) try(args ...string) (string, error) {
	if args[0] == "clean" {
		args = append(args, "--state-dir", filepath.Join(n.dir, "state"))
	}
	cmd := exec.Command(filepath.Join(nettest.Programs(n.c.t), "weft"),
		append(args, "--kubeconfig", n.c.Kubeconfig(n.c.URL, ""))...)
	var out []byte
	err := n.ns.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	return string(out), err
}

// startAgent starts weft's agent on the node.
func (n *node) startAgent() {
	c := n.c
	c.t.Helper()
	file, ready := filepath.Join(n.dir, "weft.yaml"), filepath.Join(n.dir, "ready")
	text := fmt.Sprintf(
		"node: %s\nsocket: %s\nstateDir: %s\nreadyFile: %s\nkubernetes: {kubeconfig: %s}\nnetwork: {mode: cluster, addresses: pools}\ninstall: {confDir: %s}\n",
		n.name, filepath.Join(n.dir, "agent.sock"), filepath.Join(n.dir, "state"), ready,
		c.Kubeconfig(c.URL, ""), n.confDir())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	n.agent = n.start("agent", os.Environ(), filepath.Join(nettest.Programs(c.t), "weft-agent"), "agent", "--config", file)
	c.until("the agent has written its network configuration", func() bool {
		n.agent.mustRun()
		_, err := os.Stat(filepath.Join(n.confDir(), "00-weft.conflist"))
		return err == nil
	})
}
