// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/observe"
	"github.com/weft-net/weft/internal/cli/ui"
)

// tryPolicies runs weft policy try with a file of that text.
func tryPolicies(t *testing.T, dir, text string) (out string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return tryWith(t, dir, file)
}

// tryWith runs weft policy try with a file or a flag.
func tryWith(t *testing.T, dir, file string) (out string, err error) {
	t.Helper()
	var stdout, stderr strings.Builder
	env := ui.Env{Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }}
	source := &agents.Source{Env: env}
	cmd := observe.NewTryCmd(env, source)
	source.RemoteFlags(cmd, cmd.Flags())
	cmd.SetArgs([]string{"--dir", dir, "-o", "json", file})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(context.Background())
	return stdout.String(), err
}

const onlyPort22 = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [{ports: [{port: 22}]}]}
`

// What policies would deny, and what they would allow that is denied now, is printed with the policy.
func TestTry(t *testing.T) {
	dir := lab(t, shop())
	out, err := tryPolicies(t, dir, onlyPort22)
	var changes []observe.Change
	if e := json.Unmarshal([]byte(out), &changes); e != nil {
		t.Fatalf("%v, %v: %s", err, e, out)
	}
	if ui.Code(err, ui.Env{Stderr: new(strings.Builder)}) != 1 || len(changes) != 1 || changes[0].From != "shop/web" ||
		changes[0].To != "shop/db" || changes[0].Port != 5432 || changes[0].Allowed || changes[0].Flows != 1 ||
		changes[0].Direction != "ingress" || len(changes[0].Policies) != 1 || changes[0].Policies[0].Name != "db" {
		t.Errorf("%v: %s", err, out)
	}
	// That policy is in the cluster now, and is replaced.
	if err := os.WriteFile(filepath.Join(dir, "store", "policy.yaml"), []byte(onlyPort22), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = tryPolicies(t, dir, strings.Replace(onlyPort22, "port: 22", "port: 5432", 1))
	changes = nil
	if e := json.Unmarshal([]byte(out), &changes); e != nil {
		t.Fatal(e)
	}
	if ui.Code(err, ui.Env{Stderr: new(strings.Builder)}) != 1 || len(changes) != 2 || changes[0].Port != 22 || changes[0].Allowed ||
		changes[1].Port != 5432 || !changes[1].Allowed {
		t.Errorf("%v: %s", err, out)
	}
	// The same policy again changes nothing.
	if out, err := tryPolicies(t, dir, onlyPort22); err != nil || strings.TrimSpace(out) != "[]" {
		t.Errorf("%v: %s", err, out)
	}
}

const (
	stagedPort22 = `
apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: db, namespace: shop}
spec: {selector: app == 'db', types: [Ingress], ingress: [{action: Allow, protocol: TCP, destination: {ports: [22]}}]}
`
	stagedKubernetes = `
apiVersion: crd.projectcalico.org/v1
kind: StagedKubernetesNetworkPolicy
metadata: {name: db, namespace: shop}
spec: {stagedAction: Set, podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [{ports: [{port: 22}]}]}
`
	stagedDeletion = `
apiVersion: crd.projectcalico.org/v1
kind: StagedKubernetesNetworkPolicy
metadata: {name: db, namespace: shop}
spec: {stagedAction: Delete}
`
)

// TestTryStaged: Calico's staged policies, of a file and of the cluster, count as if they were enforced. One that stands for a
// deletion leaves the policy of its name out, and one that is to be ignored changes nothing.
func TestTryStaged(t *testing.T) {
	read := func(out string, err error) []observe.Change {
		t.Helper()
		var changes []observe.Change
		if e := json.Unmarshal([]byte(out), &changes); e != nil {
			t.Fatalf("%v, %v: %s", err, e, out)
		}
		return changes
	}
	for kind, text := range map[string]string{"Calico's": stagedPort22, "Kubernetes'": stagedKubernetes} {
		dir := lab(t, shop())
		if _, err := tryWith(t, dir, "--staged"); err == nil || !strings.Contains(err.Error(), "no staged policy") {
			t.Errorf("a cluster without staged policies: %v", err)
		}
		if c := read(tryPolicies(t, dir, text)); len(c) != 1 || c[0].To != "shop/db" || c[0].Port != 5432 || c[0].Allowed {
			t.Errorf("%s of a file: %+v", kind, c)
		}
		if err := os.WriteFile(filepath.Join(dir, "store", "staged.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c := read(tryWith(t, dir, "--staged")); len(c) != 1 || c[0].To != "shop/db" || c[0].Port != 5432 || c[0].Allowed {
			t.Errorf("%s of the cluster: %+v", kind, c)
		}
	}
	dir := lab(t, shop())
	if err := os.WriteFile(filepath.Join(dir, "store", "policy.yaml"), []byte(onlyPort22), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := read(tryPolicies(t, dir, stagedDeletion)); len(c) != 1 || c[0].Port != 5432 || !c[0].Allowed {
		t.Errorf("a deletion: %+v", c)
	}
	if out, err := tryPolicies(t, dir, strings.Replace(stagedDeletion, "Delete", "Ignore", 1)); err == nil ||
		!strings.Contains(err.Error(), "no policy") {
		t.Errorf("one to be ignored: %v: %s", err, out)
	}
	if _, err := tryPolicies(t, dir, strings.Replace(stagedDeletion, "Delete", "Drop", 1)); err == nil ||
		!strings.Contains(err.Error(), `stagedAction "Drop"`) {
		t.Errorf("an unknown action: %v", err)
	}
}

// TestTryHosts: policies at host endpoints are evaluated for what nodes send each other, and rules by the labels of host
// endpoints and network sets mean their addresses, also if the cluster has no policy of Calico's yet.
func TestTryHosts(t *testing.T) {
	dir := lab(t, shop())
	store := `
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: n2, labels: {host: "yes"}}
spec: {node: node2, interfaceName: "*", expectedIPs: [172.18.0.2], profiles: [projectcalico-default-allow]}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkSet
metadata: {name: db, labels: {set: "yes"}}
spec: {nets: [10.42.2.0/24]}
`
	if err := os.WriteFile(filepath.Join(dir, "store", "hosts.yaml"), []byte(store), 0o600); err != nil {
		t.Fatal(err)
	}
	deny := func(rest string) string {
		return "apiVersion: projectcalico.org/v3\nkind: StagedGlobalNetworkPolicy\nmetadata: {name: hosts}\nspec: " + rest
	}
	for name, c := range map[string]struct{ policy, want string }{
		"a failsafe port": {deny("{selector: has(host), ingress: [{action: Deny}]}"), ""},
		"without failsafe ports": {
			"apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {failsafeInboundHostPorts: []}\n" +
				"---\n" + deny("{selector: has(host), ingress: [{action: Deny}]}"),
			"ingress node node2 22 hosts",
		},
		"a rule by a set": {
			deny("{selector: app == 'web', egress: [{action: Deny, destination: {selector: has(set), namespaceSelector: global()}}, {action: Allow}]}"),
			"egress shop/db 5432 hosts",
		},
		"no rule by the labels of the host endpoint matches another address": {
			deny("{selector: app == 'web', egress: [{action: Deny, destination: {selector: has(host), namespaceSelector: global()}}, {action: Allow}]}"), "",
		},
	} {
		text := c.policy
		if felix, staged, both := strings.Cut(text, "---\n"); both {
			if err := os.WriteFile(filepath.Join(dir, "store", "felix.yaml"), []byte(felix), 0o600); err != nil {
				t.Fatal(err)
			}
			text = staged
		} else {
			_ = os.Remove(filepath.Join(dir, "store", "felix.yaml"))
		}
		out, err := tryPolicies(t, dir, text)
		var changes []observe.Change
		if e := json.Unmarshal([]byte(out), &changes); e != nil {
			t.Fatalf("%s: %v, %v: %s", name, err, e, out)
		}
		var got []string
		for _, c := range changes {
			got = append(got, fmt.Sprintf("%s %s %d %s", c.Direction, c.To, c.Port, c.Policies[0].Name))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// A file that is no file of policies is an error that names it.
func TestTryErrors(t *testing.T) {
	dir := lab(t, shop())
	for text, want := range map[string]string{
		"":          "no policy",
		"{":         "policies.yaml",
		"kind: Pod": "policies.yaml",
		"{apiVersion: v1, kind: Namespace, metadata: {name: x}}":                                      "is no policy",
		strings.Replace(onlyPort22, "port: 22", "port: 70000", 1):                                     "70000",
		strings.Replace(onlyPort22, "podSelector: {matchLabels", "podSelector: {matchExpressions", 1): "policies.yaml",
	} {
		if out, err := tryPolicies(t, dir, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q: %s", text, err, want, out)
		}
	}
}
