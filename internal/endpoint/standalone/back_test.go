// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestBackToReference: what weft created for a container that the reference plugins have deleted stays in weft's tables
// and journal until the next ADD of the same container, or a GC.
func TestBackToReference(t *testing.T) {
	bin := peerBin(t)
	h := newHost(t)
	flushed(t)
	ns := nettest.NS(t, "c1")
	bridge := conf("1.1.0", "bridge", dualMasq+`,"ipMasqBackend":"nftables"`)
	ports := func(prev string) string {
		return strings.Replace(mapped(prev, "", `{"hostPort":8080,"containerPort":80,"protocol":"tcp"}`), `"1.0.0"`, `"1.1.0"`, 1)
	}
	elements := func() string {
		var out []string
		for line := range strings.Lines(nettest.Run(t, nil, "nft", "list", "ruleset")) {
			if strings.Contains(line, `comment "weft:n/c1/eth0"`) {
				out = append(out, line)
			}
		}
		return strings.Join(out, "")
	}
	attach := func() string {
		prev := h.must("bridge", "ADD", bridge, ns).stdout
		h.must("portmap", "ADD", ports(prev), ns)
		return prev
	}
	prev := attach()
	whole := strings.Count(elements(), "comment")
	h.peer(bin, "portmap", "DEL", ports(prev), ns)
	h.peer(bin, "bridge", "DEL", withPrev(bridge, prev), ns)
	if elements() == "" {
		t.Fatal("the reference plugins know of weft's tables by now: the document says that they do not")
	}
	prev = attach()
	if n := strings.Count(elements(), "comment"); n != whole {
		t.Errorf("after the next ADD of the container %d elements, want %d:\n%s", n, whole, elements())
	}
	h.peer(bin, "portmap", "DEL", ports(prev), ns)
	h.peer(bin, "bridge", "DEL", withPrev(bridge, prev), ns)
	for typ, c := range map[string]string{"portmap": conf("1.1.0", "portmap", ""), "bridge": bridge} {
		h.must(typ, "GC", strings.Replace(c, "{", `{"cni.dev/valid-attachments":[],`, 1), nil)
	}
	if left := elements(); left != "" {
		t.Errorf("after GC:\n%s", left)
	}
	if left, _ := filepath.Glob(h.journal + "/*/done/*"); len(left) > 0 {
		t.Errorf("in the journal after GC: %v", left)
	}
}
