// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestParallel: each test that the flags select is a process of its own in a network namespace of its own, and its
// failure fails the run.
func TestParallel(t *testing.T) {
	if os.Getenv(parallelEnv) != "" {
		t.Skip("this is the process that the test starts")
	}
	for name, c := range map[string]struct {
		run  string
		code int
		want []string
	}{
		"all well":     {"^TestParallel(One|Two)$", 0, []string{"one", "two"}},
		"one fails":    {"^TestParallel(One|Two|Fails)$", 1, []string{"one", "two"}},
		"a single one": {"^TestParallelTwo$", 0, []string{"two"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var out strings.Builder
			if code := spawn(0, &out, []string{"-test.run=" + c.run}, parallelEnv+"="+dir); code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, out.String())
			}
			spaces := map[string]bool{}
			for _, who := range c.want {
				b, err := os.ReadFile(filepath.Join(dir, who))
				if err != nil {
					t.Fatal(err)
				}
				spaces[string(b)] = true
			}
			if len(spaces) != len(c.want) {
				t.Errorf("%d tests ran in the namespaces %v", len(c.want), spaces)
			}
			if n := strings.Count(out.String(), "PASS\n") + strings.Count(out.String(), "FAIL\n"); n != 1 {
				t.Errorf("%d last words: %s", n, out.String())
			}
		})
	}
}

const parallelEnv = "WEFT_NETTEST_APART"

// TestMain: a process with parallelEnv acts as a package whose tests run in parallel.
func TestMain(m *testing.M) {
	if os.Getenv(parallelEnv) != "" {
		os.Exit(MainParallel(m, 2))
	}
	os.Exit(m.Run())
}

func record(t *testing.T, who string) {
	t.Helper()
	dir := os.Getenv(parallelEnv)
	if dir == "" {
		t.Skip("part of TestParallel")
	}
	space, err := os.Readlink("/proc/thread-self/ns/net")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, who), []byte(space), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestParallelOne(t *testing.T) { record(t, "one") }
func TestParallelTwo(t *testing.T) { record(t, "two") }
func TestParallelFails(t *testing.T) {
	record(t, "fails")
	t.Error("as it should")
}

// TestMerge: a block that one process covered is covered.
func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		parts []string
		want  string
	}{
		"set": {
			[]string{"mode: set\na.go:1.1,2.2 3 1\na.go:3.1,4.2 1 0\n", "mode: set\na.go:1.1,2.2 3 1\na.go:3.1,4.2 1 1\n"},
			"mode: set\na.go:1.1,2.2 3 1\na.go:3.1,4.2 1 1\n",
		},
		"atomic": {
			[]string{"mode: atomic\na.go:1.1,2.2 3 2\n", "mode: atomic\na.go:1.1,2.2 3 5\nb.go:1.1,2.2 1 0\n"},
			"mode: atomic\na.go:1.1,2.2 3 7\nb.go:1.1,2.2 1 0\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			profile := filepath.Join(t.TempDir(), "cover")
			for i, text := range c.parts {
				if err := os.WriteFile(part(profile, i), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := merge(profile, len(c.parts)); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(profile); err != nil || string(b) != c.want {
				t.Errorf("%s, %v; want %s", b, err, c.want)
			}
			if left, _ := filepath.Glob(profile + ".*"); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}
