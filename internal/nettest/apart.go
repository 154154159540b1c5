// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Whole skips a test of whole systems (agents, servers, kills at every moment) under go test -short, which make test
// is; make test-e2e runs it. It is no skip to be told of: nothing is missing.
func Whole(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole system: make test-e2e runs it")
	}
}

// MainApart is Main for packages whose tests mostly wait: each test is a process in namespaces of its own, and so many
// run beside one another. A test that is chosen with its subtests, a benchmark or a profile is run as Main does, and so
// is all in the emulated machine, which has no processor to spare.
func MainApart(m *testing.M, atOnce int) int {
	flag.Parse()
	if os.Getenv(inside) != "" || os.Getenv("WEFT_VM") != "" || !divisible() {
		return Main(m)
	}
	names, ok := list()
	if !ok || len(names) < 2 {
		return Main(m) // says what is wrong
	}
	return apart(names, atOnce)
}

// divisible reports whether the flags are for any number of processes.
func divisible() bool {
	for _, name := range []string{
		"bench", "fuzz", "list", "cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace", "gocoverdir",
	} {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return !strings.Contains(flag.Lookup("test.run").Value.String(), "/")
}

// list is the names of the tests that the flags choose.
func list() ([]string, bool) {
	pattern := flag.Lookup("test.run").Value.String()
	if pattern == "" {
		pattern = "."
	}
	var out bytes.Buffer
	code := spawn(0, &out, []string{"-test.list=" + pattern}, inside+"=1")
	var names []string
	for name := range strings.FieldsSeq(out.String()) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example") || strings.HasPrefix(name, "Fuzz") {
			names = append(names, name)
		}
	}
	return names, code == 0
}

// apart runs each test in a process of its own. What one prints stays together.
func apart(names []string, atOnce int) int {
	profile := flag.Lookup("test.coverprofile").Value.String()
	args := os.Args[1 : len(os.Args)-flag.NArg()]
	var printing sync.Mutex
	var wait sync.WaitGroup
	code, next := 0, make(chan int)
	for range min(atOnce, len(names)) {
		wait.Go(func() {
			for i := range next {
				mine := []string{"-test.run=^" + names[i] + "$", "-test.testlogfile="}
				if profile != "" {
					mine = append(mine, "-test.coverprofile="+part(profile, i))
				}
				var out bytes.Buffer
				c := spawn(0, &out, slices.Concat(args, mine, flag.Args()), inside+"=1")
				printing.Lock()
				code = max(code, c)
				_, _ = os.Stdout.Write(verdictless(out.Bytes()))
				printing.Unlock()
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	wait.Wait()
	if profile != "" {
		if err := merge(profile, len(names)); err != nil {
			fmt.Fprintln(os.Stderr, "nettest: coverage:", err)
			code = max(code, 2)
		}
	}
	if code == 0 {
		fmt.Println("PASS")
	} else {
		fmt.Println("FAIL")
	}
	return code
}

// verdictless is the output of a process without its last word, which is said once for all, and what it covers, which
// is a part.
func verdictless(out []byte) []byte {
	rest := out
	if at := bytes.LastIndex(rest, []byte("coverage: ")); at >= 0 && (at == 0 || rest[at-1] == '\n') &&
		bytes.IndexByte(rest[at:], '\n') == len(rest)-at-1 {
		rest = rest[:at]
	}
	for _, word := range []string{"PASS\n", "FAIL\n"} {
		if rest, found := bytes.CutSuffix(rest, []byte(word)); found {
			return bytes.TrimSuffix(rest, []byte("\x16"))
		}
	}
	return out
}

func part(profile string, i int) string { return profile + "." + strconv.Itoa(i) }

// merge makes one coverage profile of n, adding what they counted.
func merge(profile string, n int) error {
	head, counts := "", map[string]int{}
	for i := range n {
		b, err := os.ReadFile(part(profile, i))
		if err != nil {
			return err
		}
		if err := os.Remove(part(profile, i)); err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "mode: ") {
				head = line
				continue
			}
			at := strings.LastIndexByte(line, ' ')
			count, err := strconv.Atoi(line[at+1:])
			if err != nil {
				return fmt.Errorf("%s: %q: %w", filepath.Base(profile), line, err)
			}
			if head == "mode: set" {
				counts[line[:at]] = max(counts[line[:at]], count)
			} else {
				counts[line[:at]] += count
			}
		}
	}
	var b strings.Builder
	fmt.Fprintln(&b, head)
	for _, block := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintln(&b, block, counts[block])
	}
	return os.WriteFile(profile, []byte(b.String()), 0o644)
}
