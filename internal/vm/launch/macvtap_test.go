// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestMacvtap: a guest on a macvtap of a CNI plugin. weft-guest serves it nothing: its address, route and MTU come from
// the network of the parent link. A device of the node with the same number does not matter.
func TestMacvtap(t *testing.T) {
	nettest.Need(t, "macvtap")
	w := newWorld(t)
	if w.owner == 0 {
		nettest.SkipMissing(t, "a device file for a macvtap needs root")
	}
	w.macvtap()
	before := w.dump()
	w.dhcpd()
	r := w.run(w.config(w.input(model.VMMacvtap)))
	r.await("weft-guest: LEASE eth0 10.244.1.5/24 router=10.244.1.1 mtu=1400 ")
	facts := r.exec("facts")
	for _, want := range []string{
		"LINK eth0 mac=" + r.status.Interfaces[0].MAC + " mtu=1400 carrier=1", "ROUTE inet default via 10.244.1.1 dev eth0",
	} {
		if !strings.Contains(facts, "weft-guest: "+want) {
			t.Errorf("the guest lacks %q:\n%s", want, facts)
		}
	}
	r.exec("ping -c 1 -W 20 10.244.1.1")
	r.exec("answer 80 guest")
	w.expectReply("10.244.1.5:80", "guest hello")
	w.listen(w.far, "10.244.1.1:90")
	if out := r.exec("send 10.244.1.1 90 hello"); strings.TrimSpace(out) != "far hello" {
		t.Errorf("the guest received %q", out)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if after := w.dumpAs(before); after != before {
		t.Errorf("the pod was\n%s\nand is\n%s", before, after)
	}
}

// macvtap makes the pod's eth0 a macvtap, as a CNI plugin does, on a link of the far namespace.
func (w *world) macvtap() {
	w.t.Helper()
	w.ip(w.pod, "link del eth0")
	w.ip(w.far, "link add lower type veth peer name wire")
	w.ip(w.far, "link set lower up")
	w.ip(w.far, "link set wire up")
	w.ip(w.far, "addr add 10.244.1.1/24 dev wire")
	w.ip(w.far, "link add link lower name eth0 type macvtap mode bridge")
	w.ip(w.far, "link set eth0 netns "+w.pod.Path())
	w.ip(w.pod, "link set eth0 up")
}

// dhcpd runs a DHCP server in the far namespace, as the network of a macvtap would have.
func (w *world) dhcpd() {
	w.t.Helper()
	dir := w.t.TempDir()
	conf := "start 10.244.1.5\nend 10.244.1.5\ninterface wire\nmax_leases 1\nlease_file " + dir + "/leases\npidfile " +
		dir + "/pid\n" +
		"option subnet 255.255.255.0\noption router 10.244.1.1\noption mtu 1400\n"
	for name, text := range map[string]string{"conf": conf, "leases": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		nettest.SkipMissing(w.t, "there is no busybox, whose udhcpd would be the network's")
	}
	cmd := exec.Command(busybox, "udhcpd", "-f", dir+"/conf")
	if err := w.far.Do(cmd.Start); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
