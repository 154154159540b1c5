// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/deploy/chart"
)

var update = flag.Bool("update", false, "write the rendered manifests")

type object = map[string]any

// id is what an object is known by.
func id(o object) string {
	meta, _ := o["metadata"].(object)
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	kind, _ := o["kind"].(string)
	return kind + " " + namespace + "/" + name
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// documents are the texts of a file's objects.
func documents(t *testing.T, text string) []string {
	t.Helper()
	var all []string
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		if parse(t, doc) != nil {
			all = append(all, strings.Trim(doc, "\n")+"\n")
		}
	}
	return all
}

func parse(t *testing.T, text string) object {
	t.Helper()
	var o object
	if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return o
}

// agents are the manifests with an agent: the directories of their kustomizations, and the values of the chart.
func agents() map[string]mode {
	return map[string]mode{
		"weft.yaml":         {".", nil},
		"weft-multus.yaml":  {"multus", map[string]any{"mode": "multus"}},
		"weft-policy.yaml":  {"policy", map[string]any{"mode": "policy"}},
		"weft-flannel.yaml": {"flannel", map[string]any{"mode": "flannel"}},
	}
}

// mode is a way in which weft is installed.
type mode struct {
	dir    string
	values map[string]any
}

// manifests renders the chart.
func manifests(t *testing.T, values map[string]any) []chart.Manifest {
	t.Helper()
	all, err := chart.Render(values, chart.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const license = "# SPDX-License-Identifier: Apache-2.0\n"

// rendered returns what the chart and the definitions of kinds are rendered to, by path.
func rendered(t *testing.T) map[string]string {
	t.Helper()
	const by = ": go test ./deploy -update\n"
	out := map[string]string{"crds.yaml": "# Rendered from deploy/crds/kustomization.yml" + by + crds(t)}
	for _, m := range manifests(t, nil) {
		if m.Text != "" {
			text := strings.TrimPrefix(m.Text, license)
			out["base/"+m.Name+".yaml"] = license + "#\n# Rendered from deploy/chart" + by + text
		}
	}
	for _, m := range manifests(t, map[string]any{"tunnels": map[string]any{"process": "always"}}) {
		if m.Name == "tunnels" {
			text := strings.TrimPrefix(m.Text, license)
			out["tunnels/daemonset.yaml"] = license + "#\n# Rendered from deploy/chart" + by + text
			out["weft-tunnels.yaml"] = "# Rendered from deploy/chart" + by + text
		}
	}
	for file, mode := range agents() {
		var texts []string
		for _, m := range manifests(t, mode.values) {
			if m.Text != "" {
				texts = append(texts, strings.TrimPrefix(m.Text, license))
			}
		}
		out[file] = "# Rendered from deploy/chart" + by + strings.Join(texts, "---\n")
	}
	return out
}

// crds returns the definitions of kinds, in the order of their kustomization.
func crds(t *testing.T) string {
	t.Helper()
	var k struct {
		Resources []string `json:"resources"`
	}
	if err := yaml.Unmarshal(read(t, "crds/kustomization.yml"), &k); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range k.Resources {
		for _, doc := range documents(t, string(read(t, filepath.Join("crds", r)))) {
			all = append(all, strings.ReplaceAll(doc, license, ""))
		}
	}
	return strings.Join(all, "---\n")
}

// TestRendered: the manifests, and the base of the kustomizations, are the chart.
func TestRendered(t *testing.T) {
	for file, want := range rendered(t) {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, string(read(t, file))); diff != "" {
			t.Errorf("go test ./deploy -update\n%s: %s", file, diff)
		}
	}
}

// kubectl is the program, where there is one.
func kubectl(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("WEFT_KUBE_BIN_DIR")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skip("SKIP: no cache directory, so no kubectl")
		}
		dir = filepath.Join(cache, "weft", "kube-v1.36.3", "bin")
	}
	path := filepath.Join(dir, "kubectl")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIP: no kubectl in %s (make e2e builds it): the real kustomize is not asked", dir)
	}
	return path
}

// TestKustomize: kustomize makes the same objects of the base and what each directory changes.
func TestKustomize(t *testing.T) {
	program := kubectl(t)
	dirs := map[string]string{"crds.yaml": "crds", "weft-tunnels.yaml": "tunnels"}
	for file, mode := range agents() {
		dirs[file] = mode.dir
	}
	for file, dir := range dirs {
		out, err := exec.CommandContext(t.Context(), program, "kustomize", dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var want, got []object
		for _, doc := range documents(t, string(out)) {
			want = append(want, parse(t, doc))
		}
		for _, doc := range documents(t, string(read(t, file))) {
			got = append(got, parse(t, doc))
		}
		byID := func(a, b object) int { return strings.Compare(id(a), id(b)) }
		slices.SortFunc(want, byID)
		slices.SortFunc(got, byID)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}
