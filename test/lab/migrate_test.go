// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/lab"
)

// otherNode returns the node on which a VM does not run.
func otherNode(t *testing.T, st lab.Status, name string) string {
	t.Helper()
	for _, m := range st.VMs {
		if m.Name == name {
			return map[string]string{"node1": "node2", "node2": "node1"}[m.Node]
		}
	}
	t.Fatalf("no VM %s: %+v", name, st.VMs)
	return ""
}

// testMigration migrates a VM to the other node, with its addresses.
func testMigration(t *testing.T, dir string, before lab.Status, name string) {
	t.Helper()
	to := otherNode(t, before, name)
	m := decode[lab.Migration](t, must(t, "lab", "migrate", name, to, "--dir", dir, "-o", "json").stdout)
	if m.To != to || m.Resets != 0 || m.Pause <= 0 || m.Took <= 0 || m.Pod == "" {
		t.Errorf("%+v", m)
	}
	st := status(t, dir)
	if otherNode(t, st, name) == to || len(st.VMs) != len(before.VMs) || len(st.Pods) != len(before.Pods) {
		t.Errorf("%s migrated to %s: VMs %+v, pods %+v", name, to, st.VMs, st.Pods)
	}
	for _, was := range before.VMs {
		for _, is := range st.VMs {
			if d := cmp.Diff(was.Interfaces, is.Interfaces); was.Name == is.Name && d != "" {
				t.Error(d)
			}
		}
	}
	// The annotations are KubeVirt's, so that agents detect the migration.
	if b, err := os.ReadFile(
		filepath.Join(dir, "store", map[string]string{"masked": "masquerade.yaml", "direct": "direct.yaml"}[name]),
	); err != nil ||
		!strings.Contains(string(b), "nodeName: "+to) {
		t.Errorf("%s %v", b, err)
	}
}

// testKilledMigration kills a migration as soon as the target pod exists: the VM continues on its node, and the next
// migration removes the pod.
func testKilledMigration(t *testing.T, dir, name, to string) {
	t.Helper()
	pods := len(status(t, dir).Pods)
	cmd := command(t, "lab", "migrate", name, to, "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if st, _ := degradedStatus(t, dir); len(st.Pods) != pods { // the target pod may have no network yet
			break
		}
		if time.Now().After(deadline) {
			t.Error("no target pod")
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
