// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/netns"
)

// counters are what the kernel counts of packets that it does not take.
type counters map[string]int64

// refusals are the counters of /proc that tell of packets that are dropped.
func refusals() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(HdrErrors|AddrErrors|NoRoutes|NoRoute|Discards|UnknownProtos|PathFilter|Martian|ReasmFails|NoPorts|InErrors|InCsumErrors|NotForward|InTruncatedPkts|ReqDS|TooBigErrors|OutOfWindow|InPackets)`)
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
		for _, name := range []string{"snmp", "netstat", "snmp6", "dev", "stat/rt_cache"} {
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
	set := func(name, value string, base int) {
		if n, err := strconv.ParseInt(value, base, 64); err == nil && known.MatchString(name) {
			c[place+" "+name] += n
		}
	}
	lines := strings.Split(text["snmp"]+text["netstat"], "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j := 1; j < len(names) && j < len(values); j++ {
			set(strings.TrimSuffix(names[0], ":")+names[j], values[j], 10)
		}
	}
	for line := range strings.Lines(text["snmp6"]) {
		if f := strings.Fields(line); len(f) == 2 {
			set(f[0], f[1], 10)
		}
	}
	for line := range strings.Lines(text["dev"]) {
		link, values, _ := strings.Cut(line, ":")
		if f := strings.Fields(values); len(f) > 8 {
			link = strings.TrimSpace(link)
			set(link+" InErrors", f[2], 10)
			set(link+" InDiscards", f[3], 10)
			set(link+" InPackets", f[1], 10)
		}
	}
	for i, line := range strings.Split(text["stat/rt_cache"], "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 8 && place == "n1" { // all namespaces have the same
			set("MartianDestinations", f[7], 16)
			set("MartianSources", f[8], 16)
		}
	}
}

// rise says which counters are higher than they were. Where none is that tells of a refusal, the packets that links took say that the kernel
// got them and made nothing of them.
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
