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

// things are all that can be left on a node, each with its kind before the colon.
type things map[string]bool

// kinds are the columns of the table.
func kinds() []string {
	return []string{"IP", "iptables", "nft", "link", "qdisc", "route", "rule", "addr", "neigh", "file"}
}

// look counts nothing that the kernel makes by itself.
func (n *node) look() things {
	n.t.Helper()
	all := things{}
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
		for line := range strings.Lines(said(n.t, argv...)) {
			if !passing(kind, line) {
				add(kind, numberless(kind, line))
			}
		}
	}
	for line := range strings.Lines(said(n.t, "ip", "-6", "-o", "route", "show", "table", "all")) {
		if !passing("route", line) {
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

// said is what a command prints; ip is asked again when something changed under its hands.
func said(t testing.TB, argv ...string) string {
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
	t.Fatalf("%s: interrupted again and again", strings.Join(argv, " "))
	return ""
}

// passing tells of lines that come and go by themselves.
func passing(kind, line string) bool {
	switch kind {
	case "route", "addr":
		return strings.Contains(line, "fe80:") || strings.Contains(line, "ff00:")
	case "qdisc":
		return strings.Contains(line, "qdisc noqueue ")
	}
	return false
}

// numberless takes numbers out of a line that differ from look to look.
func numberless(kind, line string) string {
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
	if err := json.Unmarshal([]byte(said(t, argv...)), &links); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, l := range links {
		out[l.Name] = true
	}
	return out
}

// rules lists tables, chains, rules, sets, and each element of a set as a thing of its own.
func rules(t testing.TB) []string {
	t.Helper()
	var list struct {
		Objects []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(said(t, "nft", "-j", "list", "ruleset")), &list); err != nil {
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
				out = append(out, fmt.Sprintf("element of %v %v %s", what["table"], what["name"], text(t, e)))
			}
			out = append(out, kind+" "+text(t, counterless(what)))
		}
	}
	return out
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// counterless takes the counts of packets out of a rule.
func counterless(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "counter")
		for k := range v {
			v[k] = counterless(v[k])
		}
	case []any:
		for i := range v {
			v[i] = counterless(v[i])
		}
	}
	return v
}

// files lists files, but for locks, caches of results and what host-local remembers of its last address.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // what has gone meanwhile is not left over
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

// leaked compares, and waits a moment for what the kernel and the agent do behind the answer. It gives the number of
// things of each kind that are new, and those that are missing as kind "lost".
func (n *node) leaked(before things, patience time.Duration) (map[string]int, []string) {
	n.t.Helper()
	var list []string
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		now := n.look()
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
