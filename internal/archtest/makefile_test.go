// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/ipam/dhcp"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// TestPluginLinks checks that make build creates a link in bin/cni for each plugin type, those that the agent runs
// included.
func TestPluginLinks(t *testing.T) {
	want := []string{(&hostlocal.Allocator{}).Type(), static.New().Type(), dhcp.Type}
	for name := range plugin.Builtin() {
		want = append(want, name)
	}
	slices.Sort(want)
	text, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for variable, want := range map[string][]string{"PLUGINS": want, "AGENT_PLUGINS": wire.AgentPlugins()} {
		m := regexp.MustCompile(`(?m)^` + variable + ` +:= (.*)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("no %s in the Makefile", variable)
		}
		if d := cmp.Diff(want, strings.Fields(string(m[1]))); d != "" {
			t.Errorf("%s in the Makefile are not the plugin types (-types +Makefile):\n%s", variable, d)
		}
	}
}

// TestTags checks that released programs are built without gRPC's traces. These link html/template, because of which the
// linker keeps every exported method of every type, 5 MB of the agent.
func TestTags(t *testing.T) {
	for file, line := range map[string]string{
		"Makefile": "GOFLAGS_ ", "deploy/release.sh": `"$dir/" ./cmd/...`, "internal/nettest/programs.go": `"./cmd/..."`,
	} {
		text, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for l := range strings.Lines(string(text)) {
			if strings.Contains(l, line) && strings.Contains(l, "grpcnotrace") {
				found = true
			}
		}
		if !found {
			t.Errorf("%s builds the programs without -tags grpcnotrace", file)
		}
	}
}

// TestTargets checks that each target depends on what it needs, so that it works in a fresh checkout.
func TestTargets(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string][]string{
		"test": {"ready"}, "test-e2e": {"ready"}, "test-load": {"ready"}, "cover": {"ready"}, "ready": {"deps", "build"},
		"test-vm": {"build"}, "test-hostile": {"build"}, "bench": {"build", "peers"}, "e2e": {"image-here", "peers"},
		"e2e-upstream": {"image-here", "peers"}, "e2e-kubevirt": {"image-here", "build"}, "e2e-kubevirt-functional": {"image-here"},
	} {
		m := regexp.MustCompile(`(?m)^` + target + `:(.*)$`).FindSubmatch(text)
		if m == nil {
			t.Errorf("the Makefile has no target %s", target)
			continue
		}
		have := strings.Fields(string(m[1]))
		for _, w := range want {
			if !slices.Contains(have, w) {
				t.Errorf("make %s does not depend on %s, only on %q", target, w, have)
			}
		}
	}
}

// TestAPIServerOfTests checks that make test-e2e and .ci/run build the API server that tests of whole systems start.
func TestAPIServerOfTests(t *testing.T) {
	if recipe := regexp.MustCompile(`(?m)^test-e2e:.*\n(\t.*\n)+`).FindString(read(t, "Makefile")); !strings.Contains(recipe,
		"test/kube/build.sh") {
		t.Errorf("make test-e2e does not build Kubernetes:\n%s", recipe)
	}
	ci := read(t, ".ci/run")
	if build, tests := strings.Index(ci, "timeout $(($(left) - tests)) test/kube/build.sh"),
		strings.Index(ci, "\nmake test-e2e"); build < 0 || tests < build {
		t.Error(".ci/run does not build Kubernetes before make test-e2e")
	}
}

// TestToolsOfTests checks that test/deps.sh installs every program that a test looks up, so that make test skips no test
// on a host that may install packages.
func TestToolsOfTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "test/deps.sh"))
	if err != nil {
		t.Fatal(err)
	}
	// Programs of a package that another program represents, of every system, and of Go itself. npm would be hundreds of
	// packages, for a test that compares the committed page.
	known := map[string]bool{
		"go": true, "false": true, "sleep": true, "iptables-nft": true, "iptables-restore": true, "xorriso": true,
		"npm": true,
	}
	_, section, _ := strings.Cut(string(text), "\ntest)\n")
	section, _, _ = strings.Cut(section, ";;")
	all, _, _ := strings.Cut(string(text), "case $want in")
	for _, m := range regexp.MustCompile(`(?m)^\s*need (\S+)`).FindAllStringSubmatch(all+section, -1) {
		known[m[1]] = true
	}
	lookups := regexp.MustCompile(`LookPath\("([^"]+)"\)`)
	for _, dir := range []string{"internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root(t), dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range lookups.FindAllSubmatch(b, -1) {
				if !known[string(m[1])] {
					t.Errorf("%s looks for %s, which test/deps.sh test does not install", path, m[1])
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
