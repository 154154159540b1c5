// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/build/constraint"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSuites: whatever has a test is run by make test or by make test-e2e, and what the first leaves out by the second.
// Both are run by .ci/run. Nothing is in both but for what go test -short leaves out of it. What starts servers can run
// beside others.
func TestSuites(t *testing.T) {
	suites := map[string][]string{}
	for _, name := range []string{"pure", "own", "serial", "e2e", "e2e-serial"} {
		cmd := exec.Command(filepath.Join(root(t), "test/suites.sh"), name)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("test/suites.sh %s: %v", name, err)
		}
		suites[name] = strings.Fields(string(out))
	}
	tree := whole(t)
	for _, complaint := range reached(tree, suites) {
		t.Error(complaint)
	}
	script := read(t, "test/suites.sh")
	for _, name := range regexp.MustCompile(`(?m)(?:^| )((?:internal|test|deploy|api|cmd|examples)/[a-z0-9/]+)`).
		FindAllStringSubmatch(listed(script), -1) {
		if !slices.ContainsFunc(tree, func(s *source) bool { return s.room == name[1] && s.test() }) {
			t.Errorf("test/suites.sh speaks of %s, which has no test", name[1])
		}
	}
	ci := read(t, ".ci/run")
	for _, want := range []string{
		"make lint-lite", "make test", "make test-e2e", "make test-vm", "make test-hostile", "make demo", "make e2e",
	} {
		if !regexp.MustCompile(`(?m)^[^#\n]*` + want + `( |$)`).MatchString(ci) {
			t.Errorf(".ci/run does not run %q", want)
		}
	}
	run := read(t, "test/run.sh")
	for name := range suites {
		if !regexp.MustCompile(`(?m)^\s*run ` + name + ` `).MatchString(run) {
			t.Errorf("test/run.sh runs no suite %s", name)
		}
	}
}

// TestSuitesSee: the complaints come when they should.
func TestSuitesSee(t *testing.T) {
	plain := "package a\n\nfunc TestA(t *testing.T) {}\n"
	short := "package a\n\nfunc TestA(t *testing.T) { nettest" + ".Whole(t) }\n" // not for test/suites.sh to see
	for name, c := range map[string]struct {
		files  map[string]string
		suites map[string][]string
		want   string
	}{
		"all is well": {
			map[string]string{"internal/a/a_test.go": plain}, map[string][]string{"own": {"./internal/a"}}, "",
		},
		"well in both": {
			map[string]string{"internal/a/a_test.go": short},
			map[string][]string{"own": {"./internal/a"}, "e2e": {"./internal/a"}},
			"",
		},
		"whole": {
			map[string]string{"internal/a/a_test.go": short}, map[string][]string{"e2e": {"./internal/a"}}, "",
		},
		"nowhere": {map[string]string{"internal/a/a_test.go": plain}, nil, "internal/a"},
		"half": {
			map[string]string{"internal/a/a_test.go": short}, map[string][]string{"own": {"./internal/a"}}, "internal/a",
		},
		"twice for nothing": {
			map[string]string{"internal/a/a_test.go": plain},
			map[string][]string{"own": {"./internal/a"}, "e2e": {"./internal/a"}},
			"internal/a",
		},
		"twice": {
			map[string]string{"internal/a/a_test.go": short},
			map[string][]string{"own": {"./internal/a"}, "pure": {"./internal/a"}, "e2e": {"./internal/a"}},
			"internal/a",
		},
		"not there": {
			map[string]string{"internal/a/a_test.go": plain},
			map[string][]string{"own": {"./internal/a", "./internal/b"}},
			"internal/b",
		},
		"behind a tag": {
			map[string]string{"internal/a/a_test.go": "//go:build slow\n\n" + plain},
			map[string][]string{"own": {"./internal/a"}},
			"a_test.go",
		},
		"servers": {
			map[string]string{"internal/a/a_test.go": plain + "import \"" + module + "internal/apitest\"\n"},
			map[string][]string{"own": {"./internal/a"}},
			"internal/a",
		},
		"where nobody sees": {
			map[string]string{"internal/a/a_test.go": plain, "internal/a/a.go": short},
			map[string][]string{"own": {"./internal/a"}},
			"a.go",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var tree []*source
			for p, text := range c.files {
				tree = append(tree, &source{path: p, room: path.Dir(p), text: text})
			}
			got := strings.Join(reached(tree, c.suites), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("complains of %q, want something about %q", got, c.want)
			}
		})
	}
}

var leavesOut = regexp.MustCompile(`testing\.Short\(\)|nettest\.Whole\(`)

// reached complains of what no suite runs, or two.
func reached(tree []*source, suites map[string][]string) (complaints []string) {
	complain := func(s ...string) { complaints = append(complaints, strings.Join(s, "")) }
	tests, shorter := map[string]bool{}, map[string]bool{}
	serves, encloses := map[string]bool{}, map[string]bool{}
	for _, s := range tree {
		switch {
		case s.in("internal/nettest", "internal/house"):
			tests[s.room] = tests[s.room] || s.test()
			continue
		case !s.test():
			if leavesOut.MatchString(s.text) {
				complain(s.path, ": a test is shortened outside of its package's tests, where test/suites.sh does not see it")
			}
			continue
		}
		for line := range strings.Lines(s.text) {
			// The kernel tests are of Linux, like all of weft.
			if e, err := constraint.Parse(strings.TrimSpace(line)); err == nil &&
				!e.Eval(func(tag string) bool { return tag == "linux" || tag == "amd64" }) {
				complain(s.path, ": is behind a tag: no suite runs it (nettest.Whole puts a test into make test-e2e)")
			}
		}
		if regexp.MustCompile(`(?m)^func (Test|Example|Fuzz)`).MatchString(s.text) {
			tests[s.room] = true
		}
		serves[s.room] = serves[s.room] || strings.Contains(s.text, `"`+module+"internal/apitest\"")
		encloses[s.room] = encloses[s.room] || strings.Contains(s.text, "nettest.Main")
		shorter[s.room] = shorter[s.room] || leavesOut.MatchString(s.text)
	}
	for room := range serves {
		if serves[room] && !encloses[room] {
			complain(room,
				": its tests start servers in the machine's own network namespace, where others' ports are (nettest.Main)")
		}
	}
	whole, short := map[string]int{}, map[string]int{}
	for name, packages := range suites {
		for _, p := range packages {
			if room := strings.TrimPrefix(p, "./"); strings.HasPrefix(name, "e2e") {
				whole[room]++
			} else {
				short[room]++
			}
			if !tests[strings.TrimPrefix(p, "./")] {
				complain(p, ": in the suite ", name, ", but it has no test")
			}
		}
	}
	for room := range tests {
		switch {
		case !tests[room]:
		case whole[room]+short[room] == 0:
			complain(room, ": its tests are in no suite")
		case shorter[room] && whole[room] == 0:
			complain(room, ": what go test -short leaves out of its tests is in no suite")
		case whole[room] > 1 || short[room] > 1 || !shorter[room] && whole[room]+short[room] > 1:
			complain(room, ": its tests are in several suites")
		}
	}
	return complaints
}

// listed is what stands between lines of quotes.
func listed(script string) string {
	var out strings.Builder
	for _, list := range regexp.MustCompile(`(?ms)^[a-z]+='\n(.*?)^'`).FindAllStringSubmatch(script, -1) {
		out.WriteString(list[1])
	}
	return out.String()
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
