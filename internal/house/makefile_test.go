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

	"github.com/weft-net/weft/internal/ipam/dhcp"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// TestPluginLinks: make build leaves one link in bin/cni for each plugin type that weft has.
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
	m := regexp.MustCompile(`(?m)^PLUGINS +:= (.*)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("no PLUGINS in the Makefile")
	}
	if d := cmp.Diff(want, strings.Fields(string(m[1]))); d != "" {
		t.Errorf("PLUGINS in the Makefile are not the types that are built in (-built in +Makefile):\n%s", d)
	}
}
