// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	document = "../../docs/security.md"
	begin    = "<!-- Made of test/hostile by go test ./test/hostile -run TestDocument -update -->\n"
	end      = "<!-- end of the table -->\n"
)

var update = flag.Bool("update", false, "write the table of docs/security.md")

// TestDocument compares the table of the document with that of the suite.
func TestDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("| attack | by | what the kernel drops in part or whole, guard or not |\n|---|---|---|\n")
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
		line(s.area, s.name, s.levels, s.kernel)
	}
	b.WriteString("\nTried on (design/back end):")
	for _, at := range worlds() {
		fmt.Fprintf(&b, " %s", at)
	}
	b.WriteString(".\n\n")
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
