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

// other is the node where a machine is not.
func other(t *testing.T, st lab.Status, name string) string {
	t.Helper()
	for _, m := range st.Machines {
		if m.Name == name {
			return map[string]string{"node1": "node2", "node2": "node1"}[m.Node]
		}
	}
	t.Fatalf("no machine %s: %+v", name, st.Machines)
	return ""
}

// migrated has a machine go to the other node with its addresses.
func migrated(t *testing.T, dir string, before lab.Status, name string) {
	t.Helper()
	to := other(t, before, name)
	m := decode[lab.Migration](t, must(t, "lab", "migrate", name, to, "--dir", dir, "-o", "json").stdout)
	if m.To != to || m.Resets != 0 || m.Pause <= 0 || m.Took <= 0 || m.Pod == "" {
		t.Errorf("%+v", m)
	}
	st := status(t, dir)
	if other(t, st, name) == to || len(st.Machines) != len(before.Machines) || len(st.Pods) != len(before.Pods) {
		t.Errorf("%s has gone to %s: machines %+v, pods %+v", name, to, st.Machines, st.Pods)
	}
	for _, was := range before.Machines {
		for _, is := range st.Machines {
			if d := cmp.Diff(was.Interfaces, is.Interfaces); was.Name == is.Name && d != "" {
				t.Error(d)
			}
		}
	}
	// As KubeVirt says it, so that agents know it where nothing else tells them.
	if b, err := os.ReadFile(
		filepath.Join(dir, "store", map[string]string{"masked": "masquerade.yaml", "direct": "direct.yaml"}[name]),
	); err != nil ||
		!strings.Contains(string(b), "nodeName: "+to) {
		t.Errorf("%s %v", b, err)
	}
}

// killed kills a migration as soon as there is a second pod: the machine goes on where it is, and the next migration
// takes the pod away.
func killed(t *testing.T, dir, name, to string) {
	t.Helper()
	pods := len(status(t, dir).Pods)
	cmd := command(t, "lab", "migrate", name, to, "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if st, _ := meanwhile(t, dir); len(st.Pods) != pods { // the second one may have no network yet
			break
		}
		if time.Now().After(deadline) {
			t.Error("no pod awaits the machine")
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
