// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestCheckOfTheReferencesPods: weft's CHECK of a pod of the reference plugin detects each removed object.
func TestCheckOfTheReferencesPods(t *testing.T) {
	bin := peerBin(t)
	for _, typ := range []string{"bridge", "ptp"} {
		for _, change := range []struct {
			name, says string
			do         func(ns *netns.NS, end string)
		}{
			{"nothing", "", func(*netns.NS, string) {}},
			{"address", "pod: missing addr 10.6.0.2/24 dev eth0", func(ns *netns.NS, _ string) {
				nettest.Run(t, ns, "ip", "addr", "add", "10.6.0.3/24", "dev", "eth0")
				nettest.Run(t, ns, "ip", "addr", "del", "10.6.0.2/24", "dev", "eth0")
			}},
			{"route", "pod: missing route 192.0.2.0/24", func(ns *netns.NS, _ string) {
				nettest.Run(t, ns, "ip", "route", "del", "192.0.2.0/24")
			}},
			{"mac", "pod: want link eth0 mac ", func(ns *netns.NS, _ string) {
				nettest.Run(t, ns, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:77")
			}},
			{
				"link", "pod: missing link eth0",
				func(ns *netns.NS, _ string) { nettest.Run(t, ns, "ip", "link", "set", "eth0", "down", "name", "eth9") },
			},
			{"end", "host: missing link veth", func(_ *netns.NS, end string) {
				nettest.Run(t, nil, "ip", "link", "set", end, "down", "name", "elsewhere")
			}},
			{
				"bridge", "master sbr0, have \\\"\\\"",
				func(_ *netns.NS, end string) { nettest.Run(t, nil, "ip", "link", "set", end, "nomaster") },
			},
		} {
			if typ == "ptp" && change.name == "bridge" {
				continue
			}
			t.Run(typ+"-"+change.name, func(t *testing.T) {
				h := newHost(t)
				ns := nettest.NS(t, "c1")
				c := conf("1.0.0", typ, strings.Replace(bridged, `"dataDir"`, `"routes":[{"dst":"192.0.2.0/24"}],"dataDir"`, 1))
				text := h.peer(bin, typ, "ADD", c, ns)
				var result struct {
					Interfaces []struct{ Name, Sandbox string }
				}
				if err := json.Unmarshal([]byte(text), &result); err != nil {
					t.Fatal(err)
				}
				end := result.Interfaces[len(result.Interfaces)-2].Name
				change.do(ns, end)
				a := h.call(typ, "CHECK", strings.Replace(c, "{", `{"prevResult":`+text+`,`, 1), ns)
				if change.says == "" && a.exit != 0 || change.says != "" &&
					(a.code() != 102 || !strings.Contains(a.stdout, change.says)) {
					t.Errorf("CHECK: %+v, want %s", a, change.says)
				}
				h.must(typ, "DEL", c, ns)
				_, _ = nettest.Try(nil, "ip", "link", "del", "elsewhere")
			})
		}
	}
}
