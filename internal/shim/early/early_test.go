// SPDX-License-Identifier: Apache-2.0

//go:build amd64

package early

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unsafe"
)

// allowed are the functions of the runtime that need nothing of it: they compare and move memory. The panics are
// calls that a bounds check makes when it fails; they would end the program, as they should.
var allowed = regexp.MustCompile(`^(runtime\.(memmove|memequal|memclrNoHeapPointers|panic\w+|duffzero|duffcopy|morestack_noctxt\w*|gcWriteBarrier\d*|cmpstring|racefuncenter)(\.abi0)?|` +
	`internal/runtime/syscall/linux\.Syscall6(\.abi0)?|internal/bytealg\.\w+|memeqbody|_rt0_amd64_linux)$`)

// Before the runtime starts nothing may be called that needs it. The calls are followed in the program itself, from its
// entry.
func TestNothingNeedsTheRuntime(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "weft-cni")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-E=_weft_early", "-o", bin, "github.com/weft-net/weft/cmd/weft-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	calls := callGraph(t, bin)
	if len(calls["_weft_early"]) == 0 {
		t.Fatal("the entry calls nothing: is the program disassembled as expected?")
	}
	seen := map[string]bool{}
	var follow func(from, name string)
	follow = func(from, name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		ours := strings.HasPrefix(name, "github.com/weft-net/weft/internal/") || name == "_weft_early" ||
			strings.HasPrefix(name, "syscall.RawSyscall") || strings.HasPrefix(name, "unicode/utf8.")
		if !ours && !allowed.MatchString(name) {
			t.Errorf("%s calls %s, which needs the Go runtime", from, name)
		}
		if ours {
			for _, next := range calls[name] {
				follow(name, next)
			}
		}
	}
	follow("", "_weft_early")
	if len(seen) < 15 {
		t.Errorf("only %d functions were found: %v", len(seen), seen)
	}
}

// callGraph is what each function of a program calls, by name. A call through a register has the name of its operand.
func callGraph(t *testing.T, bin string) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "tool", "objdump", "-s", `^(_weft_early|github.com/weft-net|syscall\.RawSyscall|unicode/utf8)`, bin).Output()
	if err != nil {
		t.Fatalf("objdump: %v", err)
	}
	graph, current := map[string][]string{}, ""
	jump := regexp.MustCompile(`\t(?:CALL|JMP) ([^\s(]+\(SB\)|\S+)\s*$`)
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "TEXT "); ok {
			current, _, _ = strings.Cut(name, "(SB)")
			continue
		}
		m := jump.FindStringSubmatch(strings.TrimRight(line, "\n "))
		if m == nil || strings.HasPrefix(m[1], "0x") {
			continue
		}
		name, symbol := strings.CutSuffix(m[1], "(SB)")
		if name == current || !symbol && !strings.Contains(line, "CALL") {
			continue
		}
		graph[current] = append(graph[current], name)
	}
	return graph
}

// The memory that the assembly sets aside is what the store needs.
func TestStoreFits(t *testing.T) {
	if size := unsafe.Sizeof(store{}); size > arenaSize {
		t.Errorf("the store has %d bytes, the arena %d", size, arenaSize)
	}
	for _, file := range []string{"entry_amd64.s", "entry_arm64.s"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "GLOBL ·arena(SB), NOPTR, $139264") {
			t.Errorf("%s does not set %d bytes aside", file, arenaSize)
		}
	}
}
