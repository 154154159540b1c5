// SPDX-License-Identifier: Apache-2.0

// Package deploy has no code: its tests render the manifests, look at what they say and, where there is an API server,
// ask it.
package deploy

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the rendered manifests")

// kustomization is what of kustomize's file format is used here.
type kustomization struct {
	Resources []string            `json:"resources"`
	Patches   []map[string]string `json:"patches"`
}

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

// recipe is a directory's kustomization.
func recipe(dir string) string {
	file := filepath.Join(dir, "kustomization.yaml")
	if _, err := os.Stat(file); err != nil {
		file = filepath.Join(dir, "kustomization.yml") // next to files that others take for objects by their ending
	}
	return file
}

// render returns the objects of a kustomization as texts, in order. A patch here is a whole object, or mounts of a
// DaemonSet.
func render(t *testing.T, dir string) []string {
	t.Helper()
	var k kustomization
	if err := yaml.Unmarshal(read(t, recipe(dir)), &k); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range k.Resources {
		path := filepath.Join(dir, r)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			all = append(all, render(t, path)...)
			continue
		}
		all = append(all, documents(t, string(read(t, path)))...)
	}
	for _, p := range k.Patches {
		for _, patch := range documents(t, string(read(t, filepath.Join(dir, p["path"])))) {
			i := slices.IndexFunc(all, func(o string) bool { return id(parse(t, o)) == id(parse(t, patch)) })
			if i < 0 {
				t.Fatalf("%s: nothing to patch: %s", dir, id(parse(t, patch)))
			}
			if parse(t, patch)["kind"] == "DaemonSet" {
				patch = remounted(t, all[i], patch)
			}
			all[i] = patch
		}
	}
	return all
}

// remounted is a DaemonSet with other mounts in the place of those at the same paths. Null takes a key away.
func remounted(t *testing.T, text, patch string) string {
	t.Helper()
	path := regexp.MustCompile(`mountPath: ([^,}]+)[,}]`)
	n := 0
	for mount := range strings.Lines(patch) {
		m := path.FindStringSubmatch(mount)
		if m == nil {
			continue
		}
		var out []string
		for line := range strings.Lines(text) {
			if is := path.FindStringSubmatch(line); is != nil && is[1] == m[1] {
				line, n = strings.Replace(mount, "readOnly: null, ", "", 1), n+1
			}
			out = append(out, line)
		}
		text = strings.Join(out, "")
	}
	if n != 1 {
		t.Fatalf("%d mounts are patched, want 1", n)
	}
	return text
}

// rendered are the manifests and the kustomizations that they are made of.
func rendered() map[string]string {
	all := agents()
	all["crds.yaml"] = "crds"
	return all
}

// agents are those of them with an agent.
func agents() map[string]string {
	return map[string]string{"weft.yaml": ".", "weft-multus.yaml": "multus", "weft-flannel.yaml": "flannel"}
}

// TestRendered: the manifests are the kustomizations.
func TestRendered(t *testing.T) {
	for file, dir := range rendered() {
		want := "# Rendered from " + filepath.Join("deploy", recipe(dir)) + ": go test ./deploy -update\n" +
			strings.ReplaceAll(strings.Join(render(t, dir), "---\n"), "# SPDX-License-Identifier: Apache-2.0\n", "")
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

// TestKustomize: kustomize itself renders the same objects.
func TestKustomize(t *testing.T) {
	program := kubectl(t)
	for file, dir := range rendered() {
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
