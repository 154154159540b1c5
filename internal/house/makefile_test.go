// SPDX-License-Identifier: Apache-2.0

package house

import (
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

// TestPluginLinks: make build leaves one link in bin/cni for each plugin type that weft has, those whose work an agent
// does among them.
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
			t.Errorf("%s in the Makefile are not the types that are there (-there +Makefile):\n%s", variable, d)
		}
	}
}

// TestTags: programs that people get are built without gRPC's traces, which nobody looks at: they bring html/template,
// for which the linker keeps every exported method of every type, 5 MB of the agent.
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
