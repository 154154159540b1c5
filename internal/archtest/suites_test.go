// SPDX-License-Identifier: Apache-2.0

package archtest

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

// TestSuites checks that make test or make test-e2e runs every test, and that the second runs those that the first skips.
// .ci/run runs both. No test is in both, except those of a package that go test -short skips. Tests that start servers
// run in a network namespace of their own.
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
	tree := sources(t)
	for _, problem := range suiteProblems(tree, suites) {
		t.Error(problem)
	}
	script := read(t, "test/suites.sh")
	for _, name := range regexp.MustCompile(`(?m)(?:^| )((?:internal|test|deploy|api|cmd|examples)/[a-z0-9/]+)`).
		FindAllStringSubmatch(listed(script), -1) {
		if !slices.ContainsFunc(tree, func(s *source) bool { return s.dir == name[1] && s.test() }) {
			t.Errorf("test/suites.sh names %s, which has no test", name[1])
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

// TestSuitesFind checks that each kind of problem is found.
func TestSuitesFind(t *testing.T) {
	plain := "package a\n\nfunc TestA(t *testing.T) {}\n"
	short := "package a\n\nfunc TestA(t *testing.T) { nettest" + ".EndToEnd(t) }\n" // not for test/suites.sh to see
	for name, c := range map[string]struct {
		files  map[string]string
		suites map[string][]string
		want   string
	}{
		"in one suite": {
			map[string]string{"internal/a/a_test.go": plain}, map[string][]string{"own": {"./internal/a"}}, "",
		},
		"short in one and complete in the other": {
			map[string]string{"internal/a/a_test.go": short},
			map[string][]string{"own": {"./internal/a"}, "e2e": {"./internal/a"}},
			"",
		},
		"complete only": {
			map[string]string{"internal/a/a_test.go": short}, map[string][]string{"e2e": {"./internal/a"}}, "",
		},
		"in no suite": {map[string]string{"internal/a/a_test.go": plain}, nil, "internal/a"},
		"short only": {
			map[string]string{"internal/a/a_test.go": short}, map[string][]string{"own": {"./internal/a"}}, "internal/a",
		},
		"twice, not shortened": {
			map[string]string{"internal/a/a_test.go": plain},
			map[string][]string{"own": {"./internal/a"}, "e2e": {"./internal/a"}},
			"internal/a",
		},
		"twice": {
			map[string]string{"internal/a/a_test.go": short},
			map[string][]string{"own": {"./internal/a"}, "pure": {"./internal/a"}, "e2e": {"./internal/a"}},
			"internal/a",
		},
		"no such package": {
			map[string]string{"internal/a/a_test.go": plain},
			map[string][]string{"own": {"./internal/a", "./internal/b"}},
			"internal/b",
		},
		"build tag": {
			map[string]string{"internal/a/a_test.go": "//go:build slow\n\n" + plain},
			map[string][]string{"own": {"./internal/a"}},
			"a_test.go",
		},
		"servers": {
			map[string]string{"internal/a/a_test.go": plain + "import \"" + module + "internal/apitest\"\n"},
			map[string][]string{"own": {"./internal/a"}},
			"internal/a",
		},
		"shortened outside of tests": {
			map[string]string{"internal/a/a_test.go": plain, "internal/a/a.go": short},
			map[string][]string{"own": {"./internal/a"}},
			"a.go",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var tree []*source
			for p, text := range c.files {
				tree = append(tree, &source{path: p, dir: path.Dir(p), text: text})
			}
			got := strings.Join(suiteProblems(tree, c.suites), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}

var shortened = regexp.MustCompile(`testing\.Short\(\)|nettest\.EndToEnd\(`)

// suiteProblems returns the packages whose tests no suite runs, or two.
func suiteProblems(tree []*source, suites map[string][]string) (problems []string) {
	add := func(s ...string) { problems = append(problems, strings.Join(s, "")) }
	tests, shorter := map[string]bool{}, map[string]bool{}
	serves, encloses := map[string]bool{}, map[string]bool{}
	for _, s := range tree {
		switch {
		case s.in("internal/nettest", "internal/archtest"):
			tests[s.dir] = tests[s.dir] || s.test()
			continue
		case !s.test():
			if shortened.MatchString(s.text) {
				add(s.path, ": a test is shortened outside of its package's tests, where test/suites.sh does not find it")
			}
			continue
		}
		for line := range strings.Lines(s.text) {
			// Like all of weft, the tests are for Linux.
			if e, err := constraint.Parse(strings.TrimSpace(line)); err == nil &&
				!e.Eval(func(tag string) bool { return tag == "linux" || tag == "amd64" }) {
				add(s.path, ": has a build tag: no suite runs it (nettest.EndToEnd adds a test to make test-e2e)")
			}
		}
		if regexp.MustCompile(`(?m)^func (Test|Example|Fuzz)`).MatchString(s.text) {
			tests[s.dir] = true
		}
		serves[s.dir] = serves[s.dir] || strings.Contains(s.text, `"`+module+"internal/apitest\"")
		encloses[s.dir] = encloses[s.dir] || strings.Contains(s.text, "nettest.Main")
		shorter[s.dir] = shorter[s.dir] || shortened.MatchString(s.text)
	}
	for dir := range serves {
		if serves[dir] && !encloses[dir] {
			add(dir,
				": its tests start servers in the host's network namespace, where ports may be in use (add nettest.Main)")
		}
	}
	complete, short := map[string]int{}, map[string]int{}
	for name, packages := range suites {
		for _, p := range packages {
			if dir := strings.TrimPrefix(p, "./"); strings.HasPrefix(name, "e2e") {
				complete[dir]++
			} else {
				short[dir]++
			}
			if !tests[strings.TrimPrefix(p, "./")] {
				add(p, ": in the suite ", name, ", but it has no test")
			}
		}
	}
	for dir := range tests {
		switch {
		case !tests[dir]:
		case complete[dir]+short[dir] == 0:
			add(dir, ": its tests are in no suite")
		case shorter[dir] && complete[dir] == 0:
			add(dir, ": no suite runs the tests that go test -short skips")
		case complete[dir] > 1 || short[dir] > 1 || !shorter[dir] && complete[dir]+short[dir] > 1:
			add(dir, ": its tests are in several suites")
		}
	}
	return problems
}

// listed returns the quoted lists of a script.
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
