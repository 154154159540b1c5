// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	one := `<testsuites><testsuite>
<testcase name="[It] [sig-network] b | c [Conformance] [sig-network, Conformance]" status="passed" time="1.6"></testcase>
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="1"></testcase>
<testcase name="[It] [sig-network] skipped" status="skipped" time="0"><skipped message="x"></skipped></testcase>
<testcase name="[It] [sig-network] z is slow [sig-network]" status="timedout" time="2"><failure message="no answer&#xA;more"></failure></testcase>
</testsuite></testsuites>`
	two := `<testsuites><testsuite>
<testcase name="[It] [sig-calico] [Team:CORE] a [sig-calico, Team:CORE]" status="failed" time="2"><failure message="no answer&#xA;more"></failure></testcase>
</testsuite></testsuites>`
	want := strings.ReplaceAll(`weft: 1 specs of Kubernetes' [sig-network] passed, 2 failed.

| spec | | s | why |
|---|---|---|---|
| 'a' | failed | 2 | no answer |
| 'z is slow' | timedout | 2 | it waits |
| 'b \| c [Conformance]' | passed | 2 |  |
`, "| '", "| `")
	want = strings.ReplaceAll(want, "' |", "` |")
	dir := t.TempDir()
	var files []string
	for name, text := range map[string]string{
		"1": one, "2": two, "reasons": "# for people\nis slow\tit waits\n", "bad": "no tab\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if len(name) == 1 {
			files = append(files, file)
		}
	}
	var out strings.Builder
	if err := run(&out, "weft", "Kubernetes' [sig-network]", filepath.Join(dir, "reasons"), "", files); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := run(&out, "weft", "", filepath.Join(dir, "bad"), "", files); err == nil ||
		!strings.Contains(err.Error(), `no tab in "no tab"`) {
		t.Errorf("bad reasons: %v", err)
	}
	// Of the specs that no run chose, those with a reason are listed, once.
	none := filepath.Join(dir, "none")
	if err := os.WriteFile(none, []byte("skipp\tneeds a card\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := run(&out, "weft", "a suite", "", none, append(files, files...)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"weft: 2 specs of a suite passed, 4 failed, 1 do not apply.\n", "\n| `skipped` | not applicable | | needs a card |\n"} {
		if strings.Count(out.String(), part) != 1 {
			t.Errorf("want once %q in\n%s", part, out.String())
		}
	}
}
