// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	atomicfile      = "internal/atomicfile"
	durabilityTable = "docs/design/durability.md"
	byHand          = "## Written in other ways"
)

// renamePackages may replace or rename files without internal/atomicfile, each for a reason.
func renamePackages() map[string]string {
	return map[string]string{
		atomicfile:                  "replaces files",
		"internal/cni/shim":         "weft-cni links the standard library, shim and wire only",
		"internal/ipam/hostlocal":   "its files are the reference plugin's: a file gets its name when it has an owner, and replaces nothing",
		"internal/endpoint/journal": "moves records between its folders",
		"internal/endpoint/ledger":  "renames a torn database",
		"internal/node/cniserver":   "renames an entry of the queue that cannot be read",
		"internal/node/install":     "renames other vendors' programs, and restores their names",
		"internal/sandbox":          "reserves a name with a hard link, which replaces nothing; checks that a directory is writable",
		"internal/node/reconcile":   "checks that a directory is writable",
		"internal/cli":              "checks that a directory is writable",
		"internal/vm/guestimage":    "renames a directory",
		"internal/nettest":          "tests only",
		"internal/apitest":          "tests only",
		"test":                      "tests only",
	}
}

// checkRename checks that only internal/atomicfile replaces files.
func checkRename(tree []*source) []violation {
	dirs := slices.Collect(maps.Keys(renamePackages()))
	return calls(tree,
		func(s *source) bool { return !s.test() && !s.in(dirs...) },
		func(imported, name string) bool {
			switch imported {
			case "os":
				return name == "Rename" || name == "CreateTemp" || name == "Link"
			case "syscall", "golang.org/x/sys/unix":
				return strings.HasPrefix(name, "Rename") || name == "Fsync" || name == "Fdatasync"
			}
			return false
		})
}

// flockPackages lock files without internal/flock, each for a reason.
func flockPackages() map[string]string {
	return map[string]string{
		"internal/flock":  "locks files",
		atomicfile:        "its locks identify temporary files that are in use",
		"internal/kernel": "drivers import no other package",
	}
}

// checkFlock checks that only internal/flock locks files.
func checkFlock(tree []*source) []violation {
	dirs := slices.Collect(maps.Keys(flockPackages()))
	return calls(tree,
		func(s *source) bool { return !s.test() && !s.in(dirs...) },
		func(imported, name string) bool {
			return (imported == "syscall" || imported == "golang.org/x/sys/unix") && (name == "Flock" || name == "FcntlFlock")
		})
}

// callCounts is the number of calls that replace a file, by package and durability.
type callCounts map[string]int

// durabilities counts the calls of internal/atomicfile. A call whose durability is not a constant is a violation.
func durabilities(tree []*source) (callCounts, []violation) {
	out, violations := callCounts{}, []violation(nil)
	for _, s := range tree {
		if s.test() || s.in(atomicfile) {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 3 || !isMember(call.Fun, "atomicfile") {
				return true
			}
			last, ok := call.Args[len(call.Args)-1].(*ast.SelectorExpr)
			if !ok || !isMember(last, "atomicfile") {
				violations = append(violations, s.violation(call.Pos(), "the durability is not a constant"))
				return true
			}
			out[s.dir+" "+last.Sel.Name]++
			return true
		})
	}
	return out, violations
}

func isMember(e ast.Expr, of string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == of
}

// tableRows counts the rows of the first table, and returns the packages that sync files themselves by the second one.
func tableRows(text string) (rows callCounts, synced []string) {
	rows = callCounts{}
	first, second, _ := strings.Cut(text, byHand)
	cells := func(line string) []string {
		var out []string
		for _, c := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			out = append(out, strings.Trim(c, " `"))
		}
		return out
	}
	for line := range strings.Lines(first) {
		if c := cells(line); len(c) == 4 && strings.Contains(c[0], "/") {
			rows[c[0]+" "+c[2]]++
		}
	}
	for line := range strings.Lines(second) {
		if c := cells(line); len(c) == 4 && c[2] == "yes" {
			synced = append(synced, c[0])
		}
	}
	return rows, synced
}

// syncers returns the packages that sync files themselves.
func syncers(tree []*source) []string {
	found := map[string]bool{}
	for _, s := range tree {
		if s.test() || s.in(atomicfile) {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if ok && (sel.Sel.Name == "Sync" && len(call.Args) == 0 || sel.Sel.Name == "Fsync" || sel.Sel.Name == "Fdatasync") {
				found[s.dir] = true
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// differences compares rows and calls.
func differences(rows, calls callCounts) []string {
	var out []string
	for k, n := range calls {
		if rows[k] != n {
			out = append(out, fmt.Sprintf("%s: %d calls, %d rows", k, n, rows[k]))
		}
	}
	for k, n := range rows {
		if calls[k] == 0 {
			out = append(out, fmt.Sprintf("%s: no call, %d rows", k, n))
		}
	}
	slices.Sort(out)
	return out
}

// TestDurability compares the table of files and their durability with the calls that write them: one row per call.
func TestDurability(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(durabilityTable)))
	if err != nil {
		t.Fatal(err)
	}
	tree := sources(t)
	rows, synced := tableRows(string(text))
	calls, violations := durabilities(tree)
	for _, b := range violations {
		t.Errorf("%s\n\tpass a constant, so that a reader sees it at the call", b)
	}
	if len(calls) == 0 || len(rows) == 0 {
		t.Fatalf("%d calls, %d rows", len(calls), len(rows))
	}
	for _, d := range differences(rows, calls) {
		t.Errorf("%s\n\teach call of %s needs a row in %s with the file and the reason", d, path.Base(atomicfile),
			durabilityTable)
	}
	if slices.Sort(synced); !slices.Equal(synced, syncers(tree)) {
		t.Errorf("packages that sync files without %s: %s; %s has: %s", atomicfile, syncers(tree), durabilityTable, synced)
	}
}

// TestDurabilityFinds checks that a call without a row, a row without a call, and a computed durability are found.
func TestDurabilityFinds(t *testing.T) {
	const head = "package a\nimport \"" + module + atomicfile + "\"\n"
	tree := []*source{
		parse(t, "internal/a/a.go",
			head+"func f() { atomicfile.Write(p, b, 0o600, atomicfile.Durable); atomicfile.Write(p, b, 0o600, d) }\n"),
		parse(t, "internal/b/b.go",
			head+"func f() { atomicfile.Symlink(a, b, atomicfile.CrashSafe); atomicfile.Sweep(dir); f.Sync(); s.Sync(1) }\n"),
	}
	calls, violations := durabilities(tree)
	if len(violations) != 1 || !strings.HasPrefix(violations[0].String(), "internal/a/a.go:3: ") {
		t.Errorf("violations: %s", violations)
	}
	rows, synced := tableRows("| `internal/a` | x | `CrashSafe` | y |\n| `internal/b` | x | `CrashSafe` | y |\n" + byHand +
		"\n| `internal/c` | x | yes | y |\n| `internal/d` | x | no | y |\n")
	want := []string{"internal/a CrashSafe: no call, 1 rows", "internal/a Durable: 1 calls, 0 rows"}
	if got := differences(rows, calls); !slices.Equal(got, want) {
		t.Errorf("different: %q", got)
	}
	if got := syncers(tree); !slices.Equal(synced, []string{"internal/c"}) || !slices.Equal(got, []string{"internal/b"}) {
		t.Errorf("synced: table %s, code %s", synced, got)
	}
}
