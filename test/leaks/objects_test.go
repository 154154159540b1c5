// SPDX-License-Identifier: Apache-2.0

package leaks_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// objects are what can be left on a node, each with its kind before the colon.
type objects map[string]bool

// kinds returns the columns of the table.
func kinds() []string {
	return []string{"IP", "iptables", "nft", "link", "qdisc", "route", "rule", "addr", "neigh", "file"}
}

// takeSnapshot returns the node's objects without those that the kernel adds by itself.
func (n *node) takeSnapshot() objects {
	n.t.Helper()
	all := objects{}
	add := func(kind, what string) {
		if what = strings.Join(strings.Fields(what), " "); what != "" {
			all[kind+": "+what] = true
		}
	}
	for name := range names(n.t, "ip", "-j", "link", "show") {
		add("link", name)
	}
	for kind, argv := range map[string][]string{
		"route": {"ip", "-o", "route", "show", "table", "all"}, "rule": {"ip", "-o", "rule", "show"},
		"addr": {"ip", "-o", "addr", "show"}, "neigh": {"ip", "-o", "neigh", "show", "nud", "permanent"},
		"qdisc": {"tc", "qdisc", "show"},
	} {
		for line := range strings.Lines(output(n.t, argv...)) {
			if !isTransient(kind, line) {
				add(kind, normalize(kind, line))
			}
		}
	}
	for line := range strings.Lines(output(n.t, "ip", "-6", "-o", "route", "show", "table", "all")) {
		if !isTransient("route", line) {
			add("route", line)
		}
	}
	for _, save := range []string{"iptables-save", "ip6tables-save"} {
		out, err := nettest.Try(nil, save)
		for line := range strings.Lines(out) {
			if err == nil && !strings.HasPrefix(line, "#") {
				line, _, _ = strings.Cut(line, " [")
				add("iptables", save[:len(save)-5]+" "+line)
			}
		}
	}
	for _, what := range rules(n.t) {
		add("nft", what)
	}
	for _, dir := range []string{"/run", "/var/lib", n.dir + "/networks"} {
		for _, path := range files(n.t, dir) {
			if dir == n.dir+"/networks" {
				add("IP", filepath.Base(path))
			} else {
				add("file", path)
			}
		}
	}
	return all
}

// output returns a command's output; it repeats ip if a dump was interrupted.
func output(t testing.TB, argv ...string) string {
	t.Helper()
	for range 50 {
		var stderr strings.Builder
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, &stderr)
		}
		if !strings.Contains(stderr.String(), "interrupted") {
			return string(out)
		}
	}
	t.Fatalf("%s: interrupted too often", strings.Join(argv, " "))
	return ""
}

// isTransient reports whether a line comes and goes by itself.
func isTransient(kind, line string) bool {
	switch kind {
	case "route", "addr":
		return strings.Contains(line, "fe80:") || strings.Contains(line, "ff00:")
	case "qdisc":
		return strings.Contains(line, "qdisc noqueue ")
	}
	return false
}

// normalize removes numbers that differ between snapshots.
func normalize(kind, line string) string {
	switch kind {
	case "addr":
		_, line, _ = strings.Cut(line, ": ")
	case "route":
		line = strings.ReplaceAll(line, " linkdown", "")
	}
	return line
}

func names(t testing.TB, argv ...string) map[string]bool {
	t.Helper()
	var links []struct {
		Name string `json:"ifname"`
	}
	if err := json.Unmarshal([]byte(output(t, argv...)), &links); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, l := range links {
		out[l.Name] = true
	}
	return out
}

// rules lists tables, chains, rules, sets, and each element of a set.
func rules(t testing.TB) []string {
	t.Helper()
	var list struct {
		Objects []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(output(t, "nft", "-j", "list", "ruleset")), &list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, o := range list.Objects {
		for kind, what := range o {
			if kind == "metainfo" {
				continue
			}
			elements, _ := what["elem"].([]any)
			delete(what, "elem")
			delete(what, "handle")
			for _, e := range elements {
				out = append(out, fmt.Sprintf("element of %v %v %s", what["table"], what["name"], jsonText(t, e)))
			}
			out = append(out, kind+" "+jsonText(t, dropCounters(what)))
		}
	}
	return out
}

func jsonText(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// dropCounters removes the packet counters of a rule.
func dropCounters(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "counter")
		for k := range v {
			v[k] = dropCounters(v[k])
		}
	case []any:
		for i := range v {
			v[i] = dropCounters(v[i])
		}
	}
	return v
}

// files lists files, except for locks, caches of results and host-local's last reserved address.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // deleted meanwhile
		}
		switch name := d.Name(); {
		case name == "gate", name == "turn", name == "lock", name == "xtables.lock",
			strings.HasPrefix(name, "last_reserved_ip"):
		default:
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// leaks compares with before, and waits for asynchronous work of the kernel and the agent. It returns the number of new
// objects by kind, and missing ones as kind "lost".
func (n *node) leaks(before objects, timeout time.Duration) (map[string]int, []string) {
	n.t.Helper()
	var list []string
	for until := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
		now := n.takeSnapshot()
		list = nil
		for what := range now {
			if !before[what] {
				list = append(list, what)
			}
		}
		for what := range before {
			if !now[what] {
				list = append(list, "lost: "+what)
			}
		}
		if len(list) == 0 || time.Now().After(until) {
			break
		}
	}
	slices.Sort(list)
	count := map[string]int{}
	for _, what := range list {
		kind, _, _ := strings.Cut(what, ":")
		count[kind]++
	}
	return count, list
}
