// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestKubeVirtMultus: KubeVirt where flannel is the pods' network and weft is in front of it, as Multus is. A VM has flannel's
// network by masquerade, and a further one of a NetworkAttachmentDefinition by weft-direct. It keeps the latter's address when
// it migrates; of flannel's it gets one of its new node. Once it is deleted, nothing is left of it.
func TestKubeVirtMultus(t *testing.T) {
	c, kept := kubeVirt(t, "e2ekm")
	if !kept {
		c.Cluster = newCluster(t, c.name, "--cni", "flannel", "--multus")
		c.installKubeVirt(t)
	}
	before := map[string]string{}
	for _, n := range c.nodes(t) {
		before[n] = c.attachments(t, n)
	}
	ns := c.namespace(t)
	c.apply(t, ns, moreNetworks)
	c.apply(t, ns, podOn("one", "node1", "wide")+podOn("two", "node2", "wide"))
	c.apply(t, ns, vmWith("vm", "{name: default, masquerade: {}}, {name: blue, binding: {name: weft-direct}}",
		"{name: default, pod: {}}, {name: blue, multus: {networkName: wide}}"))
	v := c.running(t, ns, "")
	c.awaitLease(t, ns)
	facts := c.guestHas(t, ns, "ADDR eth0 inet 10.0.2.2/24", "ADDR eth1 inet 10.37.132.")
	t.Logf("the guest has %s; the VM's status %+v", facts, v.Status.Interfaces)
	reach := func() {
		t.Helper()
		addr := v.Status.Interfaces[0].IPAddress
		if a, err := netip.ParseAddr(addr); err != nil || !netip.MustParsePrefix("10.244.0.0/16").Contains(a) {
			t.Errorf("the VM's address %q is none of flannel's", addr)
		}
		for _, name := range []string{"one", "two"} {
			p := c.allReadyNamed(t, ns, name)
			c.reachByFamily(t, ns, p, addr)
			c.guestReaches(t, ns, "eth1", p.networks(t)[1].IPs[0])
		}
	}
	reach()
	from, old := v.Status.NodeName, v.Status.Interfaces[0].IPAddress
	if phase := c.migrate(t, ns); phase != "Succeeded" {
		t.Fatalf("the migration has %s: %s", phase, c.kubectl(t, "-n", ns, "get", "events"))
	}
	eventually(t, vmTime, func() error {
		v = c.running(t, ns, "")
		if v.Status.NodeName == from || v.Status.Interfaces[0].IPAddress == old {
			return fmt.Errorf("after a migration from %s, where it had %s: %+v", from, old, v.Status)
		}
		return nil
	})
	reach()
	if after, err := c.guest(ns, "vm", "facts"); err != nil || after != facts {
		t.Errorf("the guest had %s and has after the migration %s (%v)", facts, after, err)
	}
	c.kubectl(t, "-n", ns, "delete", "vm,pod", "--all", "--timeout=180s")
	eventually(t, 2*time.Minute, func() error {
		for n, want := range before {
			if got := c.attachments(t, n); got != want {
				return fmt.Errorf("%s has %s, before it had %s", n, got, want)
			}
		}
		return nil
	})
}

// testMultus: Multus itself is the nodes' network and executes weft for the first network of pods. It executes weft's plugins,
// which are in the nodes' plugin directory, for the others: also a macvtap, whose device the kubelet has allocated and Multus
// passes on. A VM has all three kinds of networks, and migrates.
func (c kubeVirtCluster) testMultus(t *testing.T) {
	program := os.Getenv("WEFT_MULTUS")
	if program == "" {
		nettest.SkipMissing(t, "needs Multus, built from its source: test/kube/multus.sh says what is missing")
	}
	c.enableMacvtaps(t)
	c.installMultus(t, program)
	files := taps(t)
	ns := c.namespace(t)
	c.apply(t, ns, moreNetworks)
	c.apply(t, ns, lan)
	pods := c.rollOut(t, ns, "web", 3)
	c.apply(t, ns, podOn("peer", "node3", "wide"))
	c.apply(t, ns, vmWith("vm",
		"{name: default, masquerade: {}}, {name: blue, macAddress: '02:00:00:00:07:01', binding: {name: weft-direct}}, {name: green, binding: {name: weft-direct}}, {name: lan, macAddress: '"+macvtapMAC+"', binding: {name: macvtap}}",
		"{name: default, pod: {}}, {name: blue, multus: {networkName: wide}}, {name: green, multus: {networkName: local}}, {name: lan, multus: {networkName: dataplane}}"))
	v := c.running(t, ns, "")
	c.awaitLease(t, ns)
	peer := c.allReadyNamed(t, ns, "peer").networks(t)
	if len(peer) != 2 || peer[0].Name != "weft" || peer[1].Interface != "net1" {
		t.Fatalf("the pod has the networks %+v, want weft's and net1", peer)
	}
	// No agent serves the guest on networks that Multus attaches: cloud-init would configure the addresses.
	wide, local := v.Status.Interfaces[1].IPAddress, v.Status.Interfaces[2].IPAddress
	eventually(t, vmTime, func() error {
		_, err := c.guest(ns, "vm", "ip addr replace "+wide+"/24 dev eth1 && ip addr replace "+local+"/24 dev eth2 && ip addr replace 10.37.134.60/24 dev eth3 && "+
			"ip link set eth1 up && ip link set eth2 up && ip link set eth3 up")
		return err
	})
	facts := c.guestHas(t, ns, "ADDR eth0 inet 10.0.2.2/24", "ADDR eth0 inet6 fd10:0:2::2/128", "ADDR eth1 inet 10.37.132.", "ADDR eth2 inet 10.38.0.",
		"LINK eth3 mac="+macvtapMAC+" mtu=1400 ")
	t.Logf("the guest has %s; the VM's status %+v", facts, v.Status.Interfaces)
	c.must(t, "exec", "node3", "ip", "addr", "replace", "10.37.134.1/24", "dev", "eth1")
	t.Cleanup(func() { _, _ = c.try("exec", "node3", "ip", "addr", "del", "10.37.134.1/24", "dev", "eth1") })
	c.guestReaches(t, ns, "eth1", peer[1].IPs[0])
	c.guestReaches(t, ns, "eth2", "10.38.0.1")
	c.guestReaches(t, ns, "eth3", "10.37.134.1")
	addrs := v.Status.Interfaces[0].IPAddresses
	for _, p := range pods {
		c.reachByFamily(t, ns, p, addrs[0])
	}
	if phase := c.migrate(t, ns); phase != "Succeeded" {
		t.Fatalf("the migration has %s: %s", phase, c.kubectl(t, "-n", ns, "get", "events"))
	}
	for _, p := range pods {
		c.reachByFamily(t, ns, p, addrs[0])
	}
	c.guestReaches(t, ns, "eth1", peer[1].IPs[0])
	c.guestReaches(t, ns, "eth3", "10.37.134.1")
	if after, err := c.guest(ns, "vm", "facts"); err != nil || after != facts {
		t.Errorf("the guest had %s and has after the migration %s (%v)", facts, after, err)
	}
	c.kubectl(t, "-n", ns, "delete", "vm,pod", "--all", "--timeout=180s")
	eventually(t, 2*time.Minute, func() error {
		_, err := c.try("exec", "control", c.weft, "ipam", "check")
		if after := taps(t); err == nil && after != files {
			err = fmt.Errorf("files of macvtaps: %q, and there were %q", after, files)
		}
		return err
	})
}

// installMultus makes Multus the network of all nodes, with weft's as its first network, and weft's plugins for the others. At
// the end of the test, weft is the nodes' network again.
func (c kubeVirtCluster) installMultus(t *testing.T, program string) {
	t.Helper()
	multus, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	dir := func(node string) string { return filepath.Dir(filepath.Dir(c.path(node, ""))) } // with the node's directories
	conf := `{"cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus", "capabilities": {"portMappings": true},
  "kubeconfig": "` + filepath.Join(filepath.Dir(dir("node1")), "pki/admin.kubeconfig") + `", "clusterNetwork": "/etc/cni/net.d/00-weft.conflist"}`
	for _, n := range c.nodes(t) {
		bin := filepath.Join(dir(n), "opt-cni/bin")
		files := []string{filepath.Join(bin, "multus"), c.path(n, "00-multus.conf")}
		for _, plugin := range []string{"bridge", "macvlan", "macvtap", "host-local", "weft-direct"} {
			file := filepath.Join(bin, plugin)
			if err := os.Symlink("weft-plugin", file); err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		t.Cleanup(func() {
			for _, f := range files {
				if err := os.Remove(f); err != nil {
					t.Error(err)
				}
			}
		})
		for i, content := range []string{string(multus), conf} {
			if err := write(files[i], content); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// write creates a program or a configuration in one step.
func write(path, content string) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(f, strings.NewReader(content)); err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
