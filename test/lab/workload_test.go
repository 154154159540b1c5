// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// write writes a manifest and returns its path.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sleeper is the manifest of a pod.
func sleeper(name, more string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {" + more +
		"containers: [{name: main, command: [sleep, infinity]}]}\n"
}

// deployment is the manifest of a Deployment.
func deployment(name string, replicas int, seconds string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: main, command: [sleep, %q]}]}
`, name, replicas, name, name, seconds)
}

func podsNamed(st lab.Status, prefix string) (out []lab.PodStatus) {
	for _, p := range st.Pods {
		if strings.HasPrefix(p.Name, prefix) {
			out = append(out, p)
		}
	}
	return out
}

// Apply starts, replaces and leaves pods as their manifests say, delete ends them, and nothing is changed by an invalid manifest.
func TestApplyAndDelete(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "2", "--dir", dir)
	one := write(t, "one.yaml", sleeper("one", "")+"---\n"+sleeper("two", "nodeName: node2, "))
	must(t, "lab", "apply", "--dir", dir, "-f", one)
	first := status(t, dir)
	if len(first.Pods) != 2 || first.Pods[1].Node != "node2" || !first.Pods[0].Ready {
		t.Fatalf("after apply: %+v", first.Pods)
	}
	allReach(t, dir, 4*3*6)
	if a := must(t, "lab", "apply", "--dir", dir, "-f", one); strings.Count(a.stderr, "unchanged") != 2 {
		t.Errorf("apply again: %s", a.stderr)
	}
	changed := write(t, "one.yaml", sleeper("one", "hostname: other, "))
	if a := must(t, "lab", "apply", "--dir", dir, "-f", changed); !strings.Contains(a.stderr, "default/one replaced") {
		t.Errorf("apply of another spec: %s", a.stderr)
	}
	second := status(t, dir)
	if second.Pods[0].UID == first.Pods[0].UID || second.Pods[0].Node != first.Pods[0].Node ||
		second.Pods[1].ID != first.Pods[1].ID {
		t.Errorf("pods were %+v, are %+v", first.Pods, second.Pods)
	}
	for says, bad := range map[string]string{
		`spec.nodeName "node9"`: sleeper("four", "nodeName: node9, "),
		`spec.ingress[0]: field "form" is not known`: "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n" +
			"metadata: {name: misspelled}\nspec: {podSelector: {}, ingress: [{form: [{podSelector: {}}]}]}\n",
	} {
		file := write(t, "bad.yaml", sleeper("three", "")+"---\n"+bad)
		if a := weft(t, "lab", "apply", "--dir", dir, "-f", file); a.code != 1 || !strings.Contains(a.stderr, says) {
			t.Errorf("apply of a bad manifest: exit %d, %s, want %s", a.code, a.stderr, says)
		}
	}
	if st := status(t, dir); len(st.Pods) != 2 {
		t.Errorf("a bad manifest changed the pods: %+v", st.Pods)
	}
	must(t, "lab", "delete", "--dir", dir, "pod/two")
	must(t, "lab", "delete", "--dir", dir, "-f", one)
	if st := status(t, dir); len(st.Pods) != 0 {
		t.Errorf("after delete: %+v", st.Pods)
	}
	if a := weft(t, "lab", "delete", "--dir", dir, "pod/two"); a.code != 1 || !strings.Contains(a.stderr, "default/two not found") {
		t.Errorf("delete of nothing: exit %d, %s", a.code, a.stderr)
	}
	for _, node := range []string{"node1", "node2"} {
		out := must(t, "sandbox", "list", "--state-dir", filepath.Join(dir, "nodes", node, "sandbox"), "-o", "json").stdout
		if strings.Contains(out, `"name": "one"`) || strings.Contains(out, `"name": "two"`) {
			t.Errorf("%s runs a deleted pod: %s", node, out)
		}
	}
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// A pod that is deleted while its node's runtime is dead ends when the runtime is back.
func TestDeleteAfterRuntimeIsReplaced(t *testing.T) {
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "1", "--from", examples2(t), "--dir", dir)
	var id process.ID
	if err := process.ReadJSON(filepath.Join(dir, "nodes", "node1", "sandbox.pid"), &id); err != nil {
		t.Fatal(err)
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, 20*waitUnit, "the runtime is dead", func() bool { st, _ := degradedStatus(t, dir); return st.Nodes[0].Sandbox == "dead" })
	must(t, "lab", "delete", "--dir", dir, "pod/one", "--wait", "0")
	must(t, "lab", "restart", "--dir", dir, "node1", "--runtime")
	state := filepath.Join(dir, "nodes", "node1", "sandbox")
	within(t, 60*waitUnit, "the deleted pod ends, and the other one runs", func() bool {
		out := weft(t, "sandbox", "list", "--state-dir", state, "-o", "json").stdout
		return !strings.Contains(out, `"name": "one"`) && strings.Contains(out, `"name": "two"`)
	})
}

// A restart of an agent, also of a dead one, is another process; pods keep their network. A restart of a pod is another pod.
func TestRestart(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--dir", dir)
	agent := func() (id process.ID) {
		t.Helper()
		if err := process.ReadJSON(filepath.Join(dir, "nodes", "node1", "agent.pid"), &id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	had, first := agent(), status(t, dir)
	must(t, "lab", "restart", "--dir", dir, "node1")
	if now := agent(); now == had || !now.Alive() || had.Alive() {
		t.Errorf("the agent was %+v, is %+v", had, now)
	}
	killAgent(t, dir, "node1")
	within(t, 20*waitUnit, "the agent is dead", func() bool { st, _ := degradedStatus(t, dir); return st.Nodes[0].Agent == "dead" })
	must(t, "lab", "restart", "--dir", dir, "node1")
	allReach(t, dir, 4*3*6)
	must(t, "lab", "restart", "--dir", dir, "one")
	now := status(t, dir)
	if now.Pods[0].UID == first.Pods[0].UID || now.Pods[0].Node != first.Pods[0].Node || now.Pods[1].ID != first.Pods[1].ID {
		t.Errorf("pods were %+v, are %+v", first.Pods, now.Pods)
	}
	allReach(t, dir, 4*3*6)
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// A Deployment has its replicas on all nodes, is scaled, and replaces its pods when its template changes.
func TestDeployment(t *testing.T) {
	dir := labDir(t)
	from := t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "front.yaml"), []byte(deployment("front", 2, "1000")), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "lab", "up", "--nodes", "2", "--from", from, "--dir", dir)
	nodes := func(st lab.Status, prefix string) (out []string) {
		for _, p := range podsNamed(st, prefix) {
			if p.Ready {
				out = append(out, p.Node)
			}
		}
		slices.Sort(out)
		return out
	}
	if got := nodes(status(t, dir), "front-"); !slices.Equal(got, []string{"node1", "node2"}) {
		t.Errorf("after up the replicas are on %v", got)
	}
	must(t, "lab", "scale", "--dir", dir, "deployment/front", "--replicas", "5")
	if got := nodes(status(t, dir), "front-"); len(got) != 5 || got[1] != "node1" || got[3] != "node2" {
		t.Errorf("5 replicas are on %v", got)
	}
	must(t, "lab", "delete", "--dir", dir, "pod/"+podsNamed(status(t, dir), "front-")[0].Name)
	within(t, 60*waitUnit, "the deleted replica is created again", func() bool {
		st, _ := degradedStatus(t, dir)
		return len(nodes(st, "front-")) == 5
	})
	old := podsNamed(status(t, dir), "front-")[0].Name
	must(t, "lab", "apply", "--dir", dir, "-f", write(t, "front.yaml", deployment("front", 3, "2000")))
	st := status(t, dir)
	if got := nodes(st, "front-"); len(got) != 3 || len(podsNamed(st, old[:len(old)-2])) != 0 {
		t.Errorf("after a change of the template: %v, %+v", got, podsNamed(st, "front-"))
	}
	must(t, "lab", "scale", "--dir", dir, "deployment/front", "--replicas", "0")
	if st := status(t, dir); len(st.Pods) != 0 {
		t.Errorf("0 replicas: %+v", st.Pods)
	}
	if a := weft(t, "lab", "scale", "--dir", dir, "deployment/back", "--replicas", "1"); a.code != 1 || !strings.Contains(a.stderr, "default/back not found") {
		t.Errorf("scale of nothing: exit %d, %s", a.code, a.stderr)
	}
	set := strings.Replace(deployment("rs", 2, "1000"), "kind: Deployment", "kind: ReplicaSet", 1)
	must(t, "lab", "apply", "--dir", dir, "-f", write(t, "rs.yaml", set))
	if got := nodes(status(t, dir), "rs-"); len(got) != 2 {
		t.Errorf("the replicas of a ReplicaSet: %v", got)
	}
	must(t, "lab", "delete", "--dir", dir, "replicaset/rs", "deployment/front")
	if st := status(t, dir); len(st.Pods) != 0 {
		t.Errorf("after delete: %+v", st.Pods)
	}
}
