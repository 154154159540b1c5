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

// EndToEnd skips a test of a whole system (agents, servers, kills at every moment) under go test -short, which make
// test uses; make test-e2e runs it. The skip is not reported: nothing is missing on the host.
func EndToEnd(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole system: make test-e2e runs it")
	}
}

// MainParallel is Main for packages whose tests mostly wait: each test is a process in namespaces of its own, and many
// run in parallel. Tests that are selected with their subtests, benchmarks and profiles run as with Main, and so does
// everything in the test VM, which has no spare processor.
func MainParallel(m *testing.M, atOnce int) int {
	flag.Parse()
	if os.Getenv(insideEnv) != "" || os.Getenv("WEFT_VM") != "" || !divisible() {
		return Main(m)
	}
	names, ok := list()
	if !ok || len(names) < 2 {
		return Main(m) // reports the error
	}
	return runParallel(names, atOnce)
}

// divisible reports whether the flags allow several processes.
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

// list returns the names of the tests that the flags select.
func list() ([]string, bool) {
	pattern := flag.Lookup("test.run").Value.String()
	if pattern == "" {
		pattern = "."
	}
	var out bytes.Buffer
	code := spawn(0, &out, []string{"-test.list=" + pattern}, insideEnv+"=1")
	var names []string
	for name := range strings.FieldsSeq(out.String()) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example") || strings.HasPrefix(name, "Fuzz") {
			names = append(names, name)
		}
	}
	return names, code == 0
}

// runParallel runs each test in a process of its own. The output of each is printed as a whole.
func runParallel(names []string, atOnce int) int {
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
				c := spawn(0, &out, slices.Concat(args, mine, flag.Args()), insideEnv+"=1")
				printing.Lock()
				code = max(code, c)
				_, _ = os.Stdout.Write(withoutVerdict(out.Bytes()))
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

// withoutVerdict returns the output of a process without its last line (PASS or FAIL), which is printed once for all,
// and without its coverage, which is partial.
func withoutVerdict(out []byte) []byte {
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

// merge merges n coverage profiles into one, adding their counts.
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
