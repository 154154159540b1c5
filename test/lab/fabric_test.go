// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// TestFabric: in a leaf-spine fabric of weft-bgp, pods in different racks reach each other over both spines. A spine that
// fails is used no more, and again when it is back. A lab that has no space for the fabric is refused.
func TestFabric(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--fabric", "torus"}, `--fabric "torus" is not`},
		{[]string{"--fabric", "leaf-spine", "--nodes", "1"}, "--fabric leaf-spine has two racks, and --nodes is 1"},
		{[]string{"--fabric", "leaf-spine", "--encapsulation", "vxlan"}, "--encapsulation is vxlan"},
	} {
		if a := weft(t, append([]string{"lab", "up", "--dir", t.TempDir() + "/lab"}, c.args...)...); a.code != 2 ||
			!strings.Contains(a.stderr, c.want) {
			t.Errorf("%v: exit %d\n%s", c.args, a.code, a.stderr)
		}
	}
	dir := labDir(t)
	must(t, "lab", "up", "--fabric", "leaf-spine", "--nodes", "4", "--from", "../../examples", "--dir", dir)
	st := status(t, dir)
	if len(st.Routers) != 4 || len(st.Problems) > 0 {
		t.Fatalf("status %+v", st)
	}
	const pairs = 432
	allReach(t, dir, pairs)
	cidrs := st.Nodes[1].PodCIDRs
	over(t, dir, cidrs[0].String(), cidrs[1].String(), "spine1", "spine2")
	// Learned routes are paths like the mesh's own, and the routers need no pods.
	if a := must(t, "status", "--dir", dir); !strings.Contains(a.stdout, "12 of 12 paths") ||
		strings.Contains(a.stdout, "bad:") || !strings.Contains(a.stdout, "3 of 3 peers were not probed") {
		t.Errorf("status of a fabric: %s", a.stdout)
	}
	must(t, "explain", "--dir", dir, "default/web", "backend/db")
	if a := must(t, "mesh", "ping", "--dir", dir, "--node", "node1"); !strings.Contains(a.stdout, "0 failed, 0 unplanned") ||
		!strings.Contains(a.stdout, "not probed: peer node2: its routes were learned by BGP") {
		t.Errorf("mesh ping in a fabric: %s", a.stdout)
	}
	out := must(t, "lab", "exec", "leaf1", "--dir", dir, "--", nettest.Programs(t)+"/weft", "bgp", "-o", "name").stdout
	if !strings.Contains(out, "spine2") {
		t.Errorf("weft bgp on a router: %s", out)
	}
	if a := weft(t, "lab", "add-node", "node5", "--dir", dir); a.code == 0 ||
		!strings.Contains(a.stderr, "--fabric leaf-spine keeps its nodes") {
		t.Errorf("add-node: exit %d\n%s", a.code, a.stderr)
	}

	// A spine fails, as one without power: its programs end, and its links have no carrier.
	for _, role := range []string{"agent", "bgp"} {
		var p process.ID
		if err := process.ReadJSON(lab.Dir(dir).Node("spine1", role+".pid"), &p); err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for _, leaf := range []string{"leaf1", "leaf2"} {
		must(t, "lab", "exec", "spine1", "--dir", dir, "--", "ip", "link", "set", leaf, "down")
	}
	over(t, dir, cidrs[0].String(), cidrs[1].String(), "spine2")
	allReach(t, dir, pairs)
	if st, code := degradedStatus(t, dir); code != 1 ||
		!strings.Contains(fmt.Sprint(st.Problems), "router spine1: bgp is dead") {
		t.Errorf("exit %d, problems %v", code, st.Problems)
	}

	// A speaker of a node that is dead is reported, too, and such a lab is not taken for one that is up.
	var speaker process.ID
	if err := process.ReadJSON(lab.Dir(dir).Node("node1", "bgp.pid"), &speaker); err != nil {
		t.Fatal(err)
	}
	if err := speaker.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		st, _ := degradedStatus(t, dir)
		if strings.Contains(fmt.Sprint(st.Problems), "node node1: bgp is dead") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("problems %v", st.Problems)
		}
	}
	must(t, "lab", "up", "--fabric", "leaf-spine", "--nodes", "4", "--dir", dir)
	if st := status(t, dir); len(st.Problems) > 0 || st.Nodes[0].Speaker != lab.Running {
		t.Errorf("up again: %+v", st)
	}
	must(t, "lab", "down", "--dir", dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the lab's directory remains: %v", err)
	}
}

// over waits until leaf1 has routes to prefixes of both families over exactly these spines.
func over(t *testing.T, dir, four, six string, spines ...string) {
	t.Helper()
	var text string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		text = ""
		good := true
		for family, prefix := range map[string]string{"-4": four, "-6": six} {
			out := must(t, "lab", "exec", "leaf1", "--dir", dir, "--", "ip", family, "route", "show", prefix).stdout
			text += out
			for _, s := range []string{"spine1", "spine2"} {
				good = good && strings.Contains(out, "dev "+s+" ") == strings.Contains(strings.Join(spines, " "), s)
			}
		}
		if good {
			return
		}
	}
	t.Fatalf("leaf1's routes do not go over %v within a minute:\n%s", spines, text)
}
