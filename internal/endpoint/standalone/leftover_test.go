// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// peerBin is the directory of the reference plugins.
func peerBin(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: nothing of the reference plugins is looked at")
	}
	return bin
}

// rules returns the lines of all netfilter rules of the node that contain a word.
func rules(t *testing.T, word string) []string {
	t.Helper()
	var out []string
	for _, argv := range [][]string{{"nft", "list", "ruleset"}, {"iptables-save"}, {"ip6tables-save"}} {
		for line := range strings.SplitSeq(nettest.Run(t, nil, argv...), "\n") {
			if strings.Contains(line, word) {
				out = append(out, argv[0]+": "+strings.TrimSpace(line))
			}
		}
	}
	return out
}

func wantRules(t *testing.T, when, word string, there bool) {
	t.Helper()
	if found := rules(t, word); len(found) > 0 != there {
		t.Errorf("%s: rules of %s: %s", when, word, strings.Join(found, "\n"))
	}
}

// legacy makes the reference plugins and the test use iptables-legacy, while weft finds both variants.
func legacy(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, rest := range []string{"", "-save", "-restore"} {
			path, err := exec.LookPath(program + "-legacy" + rest)
			if err != nil {
				nettest.SkipMissing(t, "no "+program+"-legacy"+rest+" on this host")
			}
			if err := os.Symlink(path, filepath.Join(dir, program+rest)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := nettest.Try(nil, filepath.Join(dir, "iptables"), "-t", "nat", "-L"); err != nil {
		nettest.Skip(t, "the older iptables does not work here: "+out)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// flushed starts and ends without netfilter rules.
func flushed(t *testing.T) {
	t.Helper()
	nettest.Run(t, nil, "nft", "flush", "ruleset")
	t.Cleanup(func() { nettest.Run(t, nil, "nft", "flush", "ruleset") })
}

const dualMasq = `,"bridge":"sbr0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","dataDir":"DATA",` +
	`"ranges":[[{"subnet":"10.6.0.0/24"}],[{"subnet":"fd06::/64"}]]}`

// weft's DEL removes what the reference plugins leave if the namespace is deleted before the DEL, and nothing of
// another container; weft's GC removes what no valid attachment of the network owns.
func TestLeftoversOfTheReference(t *testing.T) {
	bin := peerBin(t)
	for name, c := range map[string]struct{ typ, conf string }{
		"bridge-iptables":    {"bridge", dualMasq + `,"ipMasqBackend":"iptables"`},
		"bridge-nftables":    {"bridge", dualMasq + `,"ipMasqBackend":"nftables"`},
		"bridge-macspoofchk": {"bridge", bridged + `,"macspoofchk":true`},
		"bridge-legacy":      {"bridge", dualMasq + `,"ipMasqBackend":"iptables"`},
		"ptp-iptables":       {"ptp", `,"ipMasq":true,"ipMasqBackend":"iptables"` + hostLocal},
		"ptp-nftables":       {"ptp", `,"ipMasq":true,"ipMasqBackend":"nftables"` + hostLocal},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			flushed(t)
			if name == "bridge-legacy" {
				legacy(t)
			}
			conf := conf("1.1.0", c.typ, c.conf)
			other := strings.Replace(conf, `"name":"n"`, `"name":"m"`, 1)
			ids := []string{"first-container", "second-container", "third-container"}
			spaces := map[string]*netns.NS{}
			for _, id := range ids {
				spaces[id] = nettest.NS(t, id)
				h.peerOf(bin, c.typ, "ADD", conf, spaces[id], id)
				wantRules(t, "after ADD", id, true)
			}
			foreign := nettest.NS(t, "foreign")
			h.peerOf(bin, c.typ, "ADD", other, foreign, "of-another-network")

			forget := func(id string) { nettest.Run(t, spaces[id], "ip", "link", "del", "eth0") }
			forget(ids[0])
			h.must(c.typ, "DEL", conf, nil, "CNI_CONTAINERID="+ids[0])
			wantRules(t, "after DEL without namespace", ids[0], false)
			wantRules(t, "after DEL without namespace", ids[1], true)

			forget(ids[1])
			valid := fmt.Sprintf(`{"cni.dev/valid-attachments":[{"containerID":%q,"ifname":"eth0"}],`, ids[2])
			h.must(c.typ, "GC", strings.Replace(conf, "{", valid, 1), nil)
			wantRules(t, "after GC", ids[1], false)
			wantRules(t, "after GC", ids[2], true)
			wantRules(t, "after GC", "of-another-network", true)

			h.must(c.typ, "DEL", conf, spaces[ids[2]], "CNI_CONTAINERID="+ids[2])
			h.must(c.typ, "DEL", other, foreign, "CNI_CONTAINERID=of-another-network")
			for _, word := range []string{"d-container", "of-another", "jump CNI-", "cni-br-iface"} {
				wantRules(t, "at the end", word, false)
			}
		})
	}
}
