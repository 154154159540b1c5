// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The table of lines is between these two lines of ARCHITECTURE.md.
const (
	linkedBegin = "```linked\n"
	linkedEnd   = "```\n"
)

// linked is the number of lines of Go that a program links, without the standard library: this module's, and those of
// other modules.
type linked struct{ ours, others int }

// near reports whether two numbers of lines are equal within the size of a small change, so that the table need not be
// updated with each commit.
func near(a, b int) bool {
	d := max(a, b) - min(a, b)
	return d <= 1500 || d*33 <= max(a, b)
}

// TestLinked compares the number of lines that each program links with the table in ARCHITECTURE.md.
func TestLinked(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(root(t), "cmd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]linked{}
	var table strings.Builder
	fmt.Fprintf(&table, "%-16s  %12s  %14s\n", "program", "weft's lines", "other modules'")
	for _, dir := range dirs {
		name := filepath.Base(dir)
		now[name] = lines(t, name)
		fmt.Fprintf(&table, "%-16s  %12d  %14d\n", name, now[name].ours, now[name].others)
	}
	t.Logf("\n%s", table.String())
	file := filepath.Join(root(t), "ARCHITECTURE.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), linkedBegin)
	documented, tail, closed := strings.Cut(rest, linkedEnd)
	if !found || !closed {
		t.Fatalf("%s has no table of lines: a block that begins with %q", file, strings.TrimSpace(linkedBegin))
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+linkedBegin+table.String()+linkedEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	written := written(documented)
	for name, is := range now {
		was, ok := written[name]
		if !ok || !near(was.ours, is.ours) || !near(was.others, is.others) {
			t.Errorf("%s links %d lines of weft and %d of others, ARCHITECTURE.md has %d and %d; if the change is intended:\n"+
				"go test ./internal/archtest -run TestLinked -update", name, is.ours, is.others, was.ours, was.others)
		}
		delete(written, name)
	}
	for name := range written {
		t.Errorf("ARCHITECTURE.md has the program %s, which does not exist", name)
	}
}

// written parses the table.
func written(documented string) map[string]linked {
	out := map[string]linked{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+) +(\d+) +(\d+)$`).FindAllStringSubmatch(documented, -1) {
		ours, _ := strconv.Atoi(m[2])
		others, _ := strconv.Atoi(m[3])
		out[m[1]] = linked{ours, others}
	}
	return out
}

// lines counts the lines that a program links, as make build builds it for amd64.
func lines(t *testing.T, program string) (n linked) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-tags", "grpcnotrace", "-json=ImportPath,Standard,Dir,GoFiles",
		"./cmd/"+program)
	cmd.Dir, cmd.Env = root(t), append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps ./cmd/%s: %v", program, err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir string
			Standard        bool
			GoFiles         []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Standard {
			continue
		}
		for _, name := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(p.ImportPath, module) {
				n.ours += bytes.Count(b, []byte("\n"))
			} else {
				n.others += bytes.Count(b, []byte("\n"))
			}
		}
	}
}

// TestWritten checks the parser of the table and the tolerance.
func TestWritten(t *testing.T) {
	got := written("program  weft's lines  other modules'\nweft         12345  6\ncmd-x  7   0\n")
	if len(got) != 2 || got["weft"] != (linked{12345, 6}) || got["cmd-x"] != (linked{7, 0}) {
		t.Errorf("%v", got)
	}
	for _, c := range []struct {
		a, b int
		near bool
	}{{0, 1500, true}, {0, 1501, false}, {100_000, 103_000, true}, {104_000, 100_000, false}} {
		if near(c.a, c.b) != c.near {
			t.Errorf("%d and %d", c.a, c.b)
		}
	}
}
