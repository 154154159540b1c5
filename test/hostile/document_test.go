// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	document = "../../docs/design/security.md"
	begin    = "<!-- Made of test/hostile by go test ./test/hostile -run TestDocument -update -->\n"
	end      = "<!-- end of the table -->\n"
)

var update = flag.Bool("update", false, "write the table of docs/design/security.md")

// TestDocument compares the table of the document with that of the suite.
func TestDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("| attack | by | what the kernel drops in part or whole, with or without weft |\n|---|---|---|\n")
	area := ""
	line := func(of, name, levels, kernel string) {
		if of != area {
			area = of
			fmt.Fprintf(&b, "| **%s** | | |\n", area)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, strings.Join(strings.Split(levels, ""), ", "), kernel)
	}
	for _, a := range table() {
		line(a.area, a.name, a.levels, a.kernel)
	}
	for _, s := range stories() {
		line(s.area, s.name, s.levels, "")
	}
	b.WriteString("\n| attacks | tried on (design/backend, and the binding of a guest) |\n|---|---|\n")
	where := func(what string, all []spec, is func(spec) bool) {
		fmt.Fprintf(&b, "| %s |", what)
		before, first := "", true
		for _, at := range slices.DeleteFunc(all, func(s spec) bool { return !is(s) }) {
			if _, words := at.apart(); words != before {
				if !first {
					b.WriteString(";")
				}
				fmt.Fprintf(&b, " %s:", words)
				before = words
			}
			fmt.Fprintf(&b, " `%s`", at)
			first = false
		}
		b.WriteString(" |\n")
	}
	tunnels := func(s spec) bool { return !s.onWire() && s.backend != "vxlan" }
	where("packets of all kinds", worlds(), func(s spec) bool { return !s.onWire() && !tunnels(s) && s.fast == "" })
	fast := func(s spec) bool { return s.fast != "" }
	where("forged sources, replies and errors, with a fast path", worlds(), fast)
	where("tunnel packets, alone", worlds(), tunnels)
	where("what receivers and nodes refuse of an interface that has no end on its node", worlds(), spec.onWire)
	where("what takes its time, and errors about connections and packets of others", storyWorlds(),
		func(s spec) bool { return s.backend != "wireguard" && s.design != "ipvlan" && s.fast == "" })
	where("connections that outlive what allowed them, with a fast path", storyWorlds(), fast)
	where("an interface with another name", storyWorlds(), func(s spec) bool { return s.design == "ipvlan" })
	where("the stolen key", storyWorlds(), func(s spec) bool { return s.backend == "wireguard" })
	b.WriteString("\n")
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	have, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table between %q and %q", document, begin, end)
	}
	if *update {
		if err := os.WriteFile(document, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(have, b.String()); d != "" {
		t.Errorf("the table of %s is not the suite's (-document +suite):\n%s", document, d)
	}
}
