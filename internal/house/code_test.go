// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
)

// selectors calls f for every "package.Name" in the file, by the import path of the package.
func (s *source) selectors(f func(at token.Pos, imported, name string)) {
	paths := map[string]string{}
	for _, i := range s.tree.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		name := path.Base(p)
		if strings.HasPrefix(name, "v") && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(p))
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		paths[name] = p
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && paths[x.Name] != "" {
				f(sel.Pos(), paths[x.Name], sel.Sel.Name)
			}
		}
		return true
	})
}

// calls finds uses of package members that bad names.
func calls(tree []*source, chosen func(*source) bool, bad func(imported, name string) bool) []breach {
	var out []breach
	for _, s := range tree {
		if !chosen(s) {
			continue
		}
		s.selectors(func(at token.Pos, imported, name string) {
			if bad(imported, name) {
				out = append(out, s.breach(at, "%s.%s", path.Base(imported), name))
			}
		})
	}
	return out
}

// checkSetns: only netns calls setns and unshare. Starting a child in namespaces of its own is another thing: it is
// never one of our threads.
func checkSetns(tree []*source) []breach {
	return calls(tree,
		func(s *source) bool { return !s.in("internal/netns") },
		func(imported, name string) bool {
			switch imported {
			case "golang.org/x/sys/unix", "syscall":
				return name == "Setns" || name == "Unshare" || name == "SYS_SETNS" || name == "SYS_UNSHARE"
			case "github.com/vishvananda/netns":
				return name == "Set" || name == "New" || name == "NewNamed" || name == "Setns"
			}
			return false
		})
}

func checkInit(tree []*source) []breach {
	var out []breach
	for _, s := range tree {
		if s.client() {
			continue
		}
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				out = append(out, s.breach(f.Pos(), "func init"))
			}
		}
	}
	return out
}

// checkExit: os.Exit and its relatives only in main and TestMain.
func checkExit(tree []*source) []breach {
	var out []breach
	for _, s := range tree {
		if s.in("cmd") && !s.test() {
			continue
		}
		for _, d := range s.tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && (f.Name.Name == "TestMain" && s.test() || f.Name.Name == "main" && s.tree.Name.Name == "main") {
				continue
			}
			from, to := d.Pos(), d.End()
			s.selectors(func(at token.Pos, imported, name string) {
				if at < from || at >= to {
					return
				}
				if imported == "os" && name == "Exit" || imported == "syscall" && name == "Exit" ||
					imported == "log" && (strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "Panic")) {
					out = append(out, s.breach(at, "%s.%s", imported, name))
				}
			})
		}
	}
	return out
}

// clockRooms may ask the machine for the time or for randomness, each for a reason.
func clockRooms() map[string]string {
	return map[string]string{
		"cmd":                         "hands the clock in",
		"internal/cli":                "hands the clock in",
		"internal/node/agent/command": "hands the clock in",
		"internal/controller/command": "hands the clock in",
		"internal/bench":              "measures time",
		"internal/conformance":        "measures time",
		"internal/cli/doctor":         "deadlines of sockets",
		"internal/lab":                "waits for other processes with a deadline",
		"internal/lab/reach":          "deadlines of probes",
		"internal/nettest":            "tests only",
		"internal/apitest":            "tests only",
		"internal/kernel":             "deadlines of sockets",
		"internal/cni/shim":           "deadlines of sockets; starts once for each call",
		"internal/cni/wire":           "deadlines of sockets",
		"internal/node/cniserver":     "how long a call took; how old a file is by the file system's clock",
		"internal/node/probe":         "waits for answers to packets that random numbers tell apart",
		"internal/cluster/store/dir":  "how old a file is by the file system's clock",
		"internal/vm/guestimage":      "how old a file is by the file system's clock",
		"internal/sandbox/container":  "a monitor is a process of its own that writes times into logs",
		"test":                        "tests only",
	}
}

// checkClock: time.Now and the global random source only where they are handed in from.
func checkClock(tree []*source) []breach {
	var rooms []string
	for r := range clockRooms() {
		rooms = append(rooms, r)
	}
	return calls(tree,
		func(s *source) bool { return !s.test() && !s.in(rooms...) },
		func(imported, name string) bool {
			switch imported {
			case "time":
				return name == "Now" || name == "Since" || name == "Until"
			case "math/rand", "math/rand/v2":
				return !strings.HasPrefix(name, "New") && name != "Rand" && name != "Source" && name != "PCG" && name != "ChaCha8"
			case "crypto/rand":
				return name != "Reader"
			}
			return false
		})
}
