// SPDX-License-Identifier: Apache-2.0

package house

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
	durabilityTable = "docs/durability.md"
	byHand          = "## Written in other ways"
)

// renameRooms replace or rename files without internal/atomicfile, each for a reason.
func renameRooms() map[string]string {
	return map[string]string{
		atomicfile:                  "is how files are replaced",
		"internal/cni/shim":         "weft-cni is made of the standard library, shim and wire",
		"internal/ipam/hostlocal":   "its files are the reference plugin's: a file gets its name when it has an owner, and replaces nothing",
		"internal/endpoint/journal": "moves records between its folders",
		"internal/endpoint/ledger":  "puts a torn database aside",
		"internal/node/cniserver":   "puts an entry of the queue aside that cannot be read",
		"internal/node/install":     "gives programs of others another name, and their name back",
		"internal/sandbox":          "reserves a name by a hard link, which replaces nothing; probes whether a directory can be written",
		"internal/node/reconcile":   "probes whether a directory can be written",
		"internal/cli":              "probes whether a directory can be written",
		"internal/vm/guestimage":    "renames a directory",
		"internal/nettest":          "tests only",
		"internal/apitest":          "tests only",
		"test":                      "tests only",
	}
}

// checkRename: files are replaced by internal/atomicfile alone.
func checkRename(tree []*source) []breach {
	rooms := slices.Collect(maps.Keys(renameRooms()))
	return calls(tree,
		func(s *source) bool { return !s.test() && !s.in(rooms...) },
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

// flockRooms lock files without internal/flock, each for a reason.
func flockRooms() map[string]string {
	return map[string]string{
		"internal/flock":  "is how files are locked",
		atomicfile:        "its locks are a part of how temporary files are told apart",
		"internal/kernel": "drivers import no other room",
	}
}

// checkFlock: files are locked by internal/flock alone.
func checkFlock(tree []*source) []breach {
	rooms := slices.Collect(maps.Keys(flockRooms()))
	return calls(tree,
		func(s *source) bool { return !s.test() && !s.in(rooms...) },
		func(imported, name string) bool {
			return (imported == "syscall" || imported == "golang.org/x/sys/unix") && (name == "Flock" || name == "FcntlFlock")
		})
}

// durable is a file, or more, of a room: how many calls replace it with that durability.
type durable map[string]int // "ROOM DURABILITY"

// durabilities counts the calls of internal/atomicfile. A call whose durability is not a constant is a breach.
func durabilities(tree []*source) (durable, []breach) {
	out, breaches := durable{}, []breach(nil)
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
				breaches = append(breaches, s.breach(call.Pos(), "the durability is no constant"))
				return true
			}
			out[s.room+" "+last.Sel.Name]++
			return true
		})
	}
	return out, breaches
}

func isMember(e ast.Expr, of string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == of
}

// tabled counts the rows of the table, and gives the rooms that the second one says to sync files by themselves.
func tabled(text string) (rows durable, synced []string) {
	rows = durable{}
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

// syncers are the rooms that wait for the disk themselves.
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
				found[s.room] = true
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// different says where rows and calls do not agree.
func different(rows, calls durable) []string {
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

// TestDurability compares the table of which file survives what with the calls that write them: one row for each call.
func TestDurability(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(durabilityTable)))
	if err != nil {
		t.Fatal(err)
	}
	tree := whole(t)
	rows, synced := tabled(string(text))
	calls, breaches := durabilities(tree)
	for _, b := range breaches {
		t.Errorf("%s\n\tname it at the call, so that a reader sees it there", b)
	}
	if len(calls) == 0 || len(rows) == 0 {
		t.Fatalf("%d calls, %d rows", len(calls), len(rows))
	}
	for _, d := range different(rows, calls) {
		t.Errorf("%s\n\teach call of %s is a row of %s that says which file it is and why", d, path.Base(atomicfile),
			durabilityTable)
	}
	if slices.Sort(synced); !slices.Equal(synced, syncers(tree)) {
		t.Errorf("these wait for the disk without %s: %s; %s says: %s", atomicfile, syncers(tree), durabilityTable, synced)
	}
}

// TestDurabilitySees: a call without a row, a row without a call, and a durability that is computed are found.
func TestDurabilitySees(t *testing.T) {
	const head = "package a\nimport \"" + module + atomicfile + "\"\n"
	tree := []*source{
		parse(t, "internal/a/a.go",
			head+"func f() { atomicfile.Write(p, b, 0o600, atomicfile.Durable); atomicfile.Write(p, b, 0o600, d) }\n"),
		parse(t, "internal/b/b.go",
			head+"func f() { atomicfile.Symlink(a, b, atomicfile.CrashSafe); atomicfile.Sweep(dir); f.Sync(); s.Sync(1) }\n"),
	}
	calls, breaches := durabilities(tree)
	if len(breaches) != 1 || !strings.HasPrefix(breaches[0].String(), "internal/a/a.go:3: ") {
		t.Errorf("breaches: %s", breaches)
	}
	rows, synced := tabled("| `internal/a` | x | `CrashSafe` | y |\n| `internal/b` | x | `CrashSafe` | y |\n" + byHand +
		"\n| `internal/c` | x | yes | y |\n| `internal/d` | x | no | y |\n")
	want := []string{"internal/a CrashSafe: no call, 1 rows", "internal/a Durable: 1 calls, 0 rows"}
	if got := different(rows, calls); !slices.Equal(got, want) {
		t.Errorf("different: %q", got)
	}
	if got := syncers(tree); !slices.Equal(synced, []string{"internal/c"}) || !slices.Equal(got, []string{"internal/b"}) {
		t.Errorf("synced: table %s, code %s", synced, got)
	}
}
