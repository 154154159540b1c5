// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// passtFiles are the files that passt opens to forward all ports of both protocols that a kernel with the usual range of
// ports for connections does not choose itself, and some more.
const passtFiles = 2*(65535-(60999-32768+1)) + 200

// testPasst: a guest of KubeVirt's passt binding without ports is reached, by both families, on a port that its interface does not name.
// Where containers may open too few files for that, the pod's kernel keeps more of the ports for connections.
func (c kubeVirtCluster) testPasst(t *testing.T) {
	var files unix.Rlimit // containers inherit it
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if files.Max < passtFiles {
		policy, err := os.ReadFile("../kubevirt/passt-ports.yaml")
		if err != nil {
			t.Fatal(err)
		}
		c.apply(t, "default", string(policy))
		defer c.kubectl(t, "delete", "-f", c.absolute(t, "../kubevirt/passt-ports.yaml"))
		t.Logf("a process may open %d files, passt needs %d: VMs' pods have a smaller range of ports to forward", files.Max, passtFiles)
	}
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 3)
	c.apply(t, ns, vmManifest("vm", "passtBinding: {}"))
	v := c.running(t, ns, "")
	lease := c.awaitLease(t, ns)
	addrs := v.Status.Interfaces[0].IPAddresses
	t.Logf("the guest has %s; the VM's status %+v", lease, v.Status.Interfaces)
	if len(addrs) != 2 || !strings.Contains(lease, " "+addrs[0]+"/") {
		t.Errorf("the guest has %s and the VM %q, want the pod's address, and one of each family", lease, addrs)
	}
	for _, p := range pods {
		c.reachBothWays(t, ns, p, addrs)
	}
}

// absolute returns the path of a file for a program in another directory.
func (kubeVirtCluster) absolute(t *testing.T, file string) string {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// testBridgeMAC: a guest with KubeVirt's bridge binding on the pod network has the MAC that its VM requests. No plugin learns it
// from KubeVirt, and weft admits the packets of the pod's MAC only.
func (c kubeVirtCluster) testBridgeMAC(t *testing.T) {
	const mac = "02:00:00:00:07:03"
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 3)
	c.apply(t, ns, vmManifest("vm", "macAddress: '"+mac+"', bridge: {}"))
	v := c.running(t, ns, "")
	c.awaitLease(t, ns)
	t.Logf("the guest has %s", c.guestHas(t, ns, "LINK eth0 mac="+mac+" "))
	for _, p := range pods {
		c.reachByFamily(t, ns, p, v.Status.Interfaces[0].IPAddress)
	}
}
