// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// peer runs the reference plugin of that name.
func (h *host) peer(bin, name, verb, conf string, ns *netns.NS, env ...string) string {
	h.t.Helper()
	return h.peerOf(bin, name, verb, conf, ns, "c1", env...)
}

// peerOf is peer for another container.
func (h *host) peerOf(bin, name, verb, conf string, ns *netns.NS, id string, env ...string) string {
	h.t.Helper()
	cmd := exec.Command(filepath.Join(bin, name))
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(conf, "DATA", h.data))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+id, "CNI_IFNAME=eth0", "CNI_NETNS="+ns.Path(),
		"CNI_PATH="+bin)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("reference %s %s: %v %s", name, verb, err, out)
	}
	return string(out)
}

// An attachment of one program can be checked and deleted by the other, so that the programs can be exchanged under
// running pods.
func TestExchangedUnderRunningPods(t *testing.T) {
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: not exchanged with the reference plugins")
	}
	for _, typ := range []string{"bridge", "ptp"} {
		t.Run(typ, func(t *testing.T) {
			h := newHost(t)
			ns := nettest.NS(t, "c1")
			c := conf("1.0.0", typ, bridged)
			gone := func(who string) {
				t.Helper()
				if out, err := nettest.Try(ns, "ip", "link", "show", "eth0"); err == nil {
					t.Errorf("%s: eth0 is left: %s", who, out)
				}
				if left, _ := filepath.Glob(h.data + "/n/1*"); len(left) > 0 {
					t.Errorf("%s: addresses left: %v", who, left)
				}
			}
			result := h.peer(bin, typ, "ADD", c, ns)
			if a := h.call(typ, "ADD", c, ns); a.exit == 0 {
				t.Error("ADD over the peer's attachment")
			}
			prev := strings.Replace(c, "{", `{"prevResult":`+result+`,`, 1)
			h.must(typ, "CHECK", prev, ns)
			h.must(typ, "DEL", prev, ns)
			gone("weft's DEL of the peer's ADD")

			result = h.must(typ, "ADD", c, ns).stdout
			prev = strings.Replace(c, "{", `{"prevResult":`+result+`,`, 1)
			h.peer(bin, typ, "CHECK", prev, ns)
			h.peer(bin, typ, "DEL", prev, ns)
			gone("the peer's DEL of weft's ADD")
			// What the peer left of weft's own, the next ADD of the container takes.
			h.must(typ, "ADD", c, ns)
			h.must(typ, "DEL", c, ns)
			gone("weft after both")
			if left, _ := filepath.Glob(h.journal + "/*/*/*.json"); len(left) > 0 {
				t.Errorf("records: %v", left)
			}
		})
	}
}
