// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// counters are what the kernel counts of packets that it does not take.
type counters map[string]int64

// refusals are the counters of /proc that tell of packets that are dropped.
func refusals() *regexp.Regexp {
	return regexp.MustCompile(
		`(?i)(HdrErrors|AddrErrors|NoRoutes|NoRoute|Discards|UnknownProtos|PathFilter|ReasmFails|NoPorts|InErrors|InCsumErrors|NotForward|InTruncatedPkts|ReqDS|TooBigErrors|OutOfWindow|InPackets)`,
	)
}

// counters are those of the nodes and of the attacked pods.
func (w *world) counters() counters {
	out := counters{}
	for _, n := range w.nodes {
		out.read(w, n.name, n.ns)
	}
	for name, p := range w.pods {
		out.read(w, name, p.ns)
	}
	return out
}

func (c counters) read(w *world, place string, ns *netns.NS) {
	text := map[string]string{}
	err := ns.Do(func() error {
		for _, name := range []string{"snmp", "netstat", "snmp6", "dev"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			text[name] = string(b)
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	known := refusals()
	set := func(name, value string) {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && known.MatchString(name) {
			c[place+" "+name] += n
		}
	}
	lines := strings.Split(text["snmp"]+text["netstat"], "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j := 1; j < len(names) && j < len(values); j++ {
			set(strings.TrimSuffix(names[0], ":")+names[j], values[j])
		}
	}
	for line := range strings.Lines(text["snmp6"]) {
		if f := strings.Fields(line); len(f) == 2 {
			set(f[0], f[1])
		}
	}
	for line := range strings.Lines(text["dev"]) {
		link, values, _ := strings.Cut(line, ":")
		if f := strings.Fields(values); len(f) > 8 {
			link = strings.TrimSpace(link)
			set(link+" InErrors", f[2])
			set(link+" InDiscards", f[3])
			set(link+" InPackets", f[1])
		}
	}
	c.unrouted(w, place, ns)
}

// countRouting has the kernel count, in a namespace, the packets that come to it to be routed, and those of them that
// are. The kernel's own count of sources that it does not route ("martians") is one for all namespaces, and other
// worlds attack at the same time.
func (w *world) countRouting(ns *netns.NS) {
	w.Helper()
	nettest.Run(w, ns, "nft", strings.Join([]string{
		"add table inet routing", "add counter inet routing come", "add counter inet routing gone",
		"add chain inet routing pre { type filter hook prerouting priority 1000; }",
		"add rule inet routing pre meta pkttype host counter name come",
		"add chain inet routing in { type filter hook input priority -1000; }",
		"add rule inet routing in meta pkttype host counter name gone",
		"add chain inet routing on { type filter hook forward priority -1000; }",
		"add rule inet routing on meta pkttype host counter name gone",
	}, "; "))
}

// unrouted reads them where they are counted.
func (c counters) unrouted(w *world, place string, ns *netns.NS) {
	out, err := nettest.Try(ns, "nft", "-j", "list", "counters", "table", "inet", "routing")
	if err != nil {
		return // the guard stands
	}
	var list struct {
		NFTables []struct {
			Counter struct {
				Name    string
				Packets int64
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		w.Fatal(err)
	}
	for _, o := range list.NFTables {
		switch o.Counter.Name {
		case "come":
			c[place+" NotRouted"] += o.Counter.Packets
		case "gone":
			c[place+" NotRouted"] -= o.Counter.Packets
		}
	}
}

// rise says which counters are higher than they were. Where none is that tells of a refusal, the packets that links
// took say that the kernel got them and made nothing of them.
func (w *world) rise(before counters) string {
	var out, got []string
	for name, n := range w.counters() {
		d := n - before[name]
		switch text := fmt.Sprintf("%s +%d", name, d); {
		case d > 0 && strings.HasSuffix(name, "InPackets"):
			got = append(got, text)
		case d > 0:
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		out = got
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
