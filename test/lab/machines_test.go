// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/lab/reach"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/launch"
)

// TestMachines: machines of the manifests run in a lab, one by masquerade and one by weft-direct. Both go to another
// node, with a connection each that goes on. Behind that nodes reach them and they reach the nodes and each other, in
// both families; nothing is left.
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
	if len(st.Machines) != 2 || slices.ContainsFunc(st.Machines, func(m launch.Status) bool {
		return m.Phase != launch.Running || len(m.Interfaces[0].IPs) != 2
	}) {
		t.Errorf("machines: %+v", st.Machines)
	}
	killed(t, dir, "masked", other(t, st, "masked"))
	for _, name := range []string{"masked", "direct"} {
		migrated(t, dir, st, name)
	}
	plugged(t, dir)
	// A guest is emulated: it may take its time.
	a := weft(t, "lab", "reach", "--dir", dir, "-o", "json", "--timeout", "20s")
	r := decode[reach.Report](t, a.stdout)
	if pairs := 4 * 3 * 6; a.code != 0 || r.Pairs != pairs || r.Reached != pairs {
		t.Errorf("reach: exit %d, %d of %d reach, want %d; failed: %+v", a.code, r.Reached, r.Pairs, pairs, r.Failed)
	}
	must(t, "lab", "down", "--dir", dir)
	before.same(t, dir)
}

// plugged has a machine that runs attached to a network more, its link taken down, and the machine detached again.
func plugged(t *testing.T, dir string) {
	t.Helper()
	network :=
		`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition","metadata":{"name":"green","namespace":"default"},"spec":{"config":` +
			`"{\"cniVersion\":\"1.0.0\",\"type\":\"bridge\",\"bridge\":\"green\",\"ipam\":{\"type\":\"host-local\",\"dataDir\":\"` + dir + `/green\",\"subnet\":\"10.41.0.0/24\"}}"}}`
	if err := os.WriteFile(filepath.Join(dir, "store", "green.json"), []byte(network), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range status(t, dir).Machines {
		if m.Name != "masked" {
			continue
		}
		on := filepath.Dir(m.Dir)
		for _, c := range []struct{ verb, want string }{
			{"attach masked green --network green", "10.41.0.2"},
			{"link masked green down", "down"},
			{"detach masked green", "default"},
		} {
			out := must(t, append(append([]string{"vm"}, strings.Fields(c.verb)...), "--dir", on)...).stdout
			if !strings.Contains(out, c.want) || strings.Contains(out, "green") != (c.want != "default") {
				t.Errorf("%s: %s", c.verb, out)
			}
		}
		for args, want := range map[string]string{
			"--network nonsuch": `network "red" of machine default/masked: NetworkAttachmentDefinition default/nonsuch `,
			// What the agent says of the pod.
			"--network green --mac 02:00:00:00:00:09": "networks of machine default/masked: pod default/",
		} {
			a := weft(t, append([]string{"vm", "attach", "masked", "red", "--dir", on}, strings.Fields(args)...)...)
			if a.code != 1 || !strings.Contains(a.stderr, want) {
				t.Errorf("exit %d: %s", a.code, a.stderr)
			}
		}
		pod := strings.TrimPrefix(m.Pod, "default/")
		within(t, 10*waitUnit, "the end of the pod's links", func() bool {
			return !strings.Contains(weft(t, "lab", "exec", "--dir", dir, "default/"+pod, "--", "ip", "-br", "link").stdout,
				"pod")
		})
	}
}
