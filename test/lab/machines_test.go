// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/reach"
	"github.com/weft-net/weft/internal/vm/launch"
)

// TestMachines: machines of the manifests run in a lab, one by masquerade and one by weft-direct. Both go to another node, with a
// connection each that goes on. Behind that nodes reach them and they reach the nodes and each other, in both families; nothing is left.
func TestMachines(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.Without(t, "there is no qemu-system-x86_64")
	}
	nettest.Need(t, "tap")
	if a := weft(t, "vm", "image"); a.code != 0 {
		nettest.Without(t, a.stderr)
	}
	dir := labDir(t)
	before := look(t, dir)
	up := must(t, "lab", "up", "--nodes", "2", "--from", examples+"/machines", "--addresses", "pools", "--dir", dir)
	if !strings.Contains(up.stderr, "booting 2 virtual machines") {
		t.Errorf("up said:\n%s", up.stderr)
	}
	st := status(t, dir)
	if len(st.Machines) != 2 || slices.ContainsFunc(st.Machines, func(m launch.Status) bool { return m.Phase != launch.Running || len(m.Interfaces[0].IPs) != 2 }) {
		t.Errorf("machines: %+v", st.Machines)
	}
	killed(t, dir, "masked", other(t, st, "masked"))
	for _, name := range []string{"masked", "direct"} {
		migrated(t, dir, st, name)
	}
	// A guest is emulated: it may take its time.
	a := weft(t, "lab", "reach", "--dir", dir, "-o", "json", "--timeout", "20s")
	r := decode[reach.Report](t, a.stdout)
	if pairs := 4 * 3 * 6; a.code != 0 || r.Pairs != pairs || r.Reached != pairs {
		t.Errorf("reach: exit %d, %d of %d reach, want %d; failed: %+v", a.code, r.Reached, r.Pairs, pairs, r.Failed)
	}
	must(t, "lab", "down", "--dir", dir)
	before.same(t, dir)
}
