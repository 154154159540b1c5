// SPDX-License-Identifier: Apache-2.0

package archtest

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

// calls returns the uses of package members for which bad returns true.
func calls(tree []*source, chosen func(*source) bool, bad func(imported, name string) bool) []violation {
	var out []violation
	for _, s := range tree {
		if !chosen(s) {
			continue
		}
		s.selectors(func(at token.Pos, imported, name string) {
			if bad(imported, name) {
				out = append(out, s.violation(at, "%s.%s", path.Base(imported), name))
			}
		})
	}
	return out
}

// checkSetns checks that only netns calls setns and unshare. A child that is started in namespaces of its own is not one
// of this process' threads.
func checkSetns(tree []*source) []violation {
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

func checkInit(tree []*source) []violation {
	var out []violation
	for _, s := range tree {
		if s.client() {
			continue
		}
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				out = append(out, s.violation(f.Pos(), "func init"))
			}
		}
	}
	return out
}

// checkExit checks that only main and TestMain exit the process.
func checkExit(tree []*source) []violation {
	var out []violation
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
					out = append(out, s.violation(at, "%s.%s", imported, name))
				}
			})
		}
	}
	return out
}

// clockPackages may read the host's clock and random source, each for a reason.
func clockPackages() map[string]string {
	return map[string]string{
		"cmd":                         "passes the clock",
		"internal/cli":                "passes the clock",
		"internal/node/agent/command": "passes the clock",
		"internal/controller/command": "passes the clock",
		"internal/docker/command":     "passes the clock",
		"internal/bench":              "measures time",
		"internal/conformance":        "measures time",
		"internal/connectivitytest":   "waits for pods and answers with a deadline; names what it creates",
		"internal/cli/doctor":         "deadlines of sockets",
		"internal/lab":                "waits for other processes with a deadline",
		"internal/lab/connectivity":   "deadlines of probes",
		"internal/nettest":            "tests only",
		"internal/apitest":            "tests only",
		"internal/kernel":             "deadlines of sockets",
		"internal/cni/shim":           "deadlines of sockets; starts once for each call",
		"internal/cni/wire":           "deadlines of sockets",
		"internal/node/cniserver":     "how long a call took; how old a file is by the file system's clock",
		"internal/node/probe":         "waits for answers to packets that random numbers identify",
		"internal/cluster/store/dir":  "how old a file is by the file system's clock",
		"internal/vm/guestimage":      "how old a file is by the file system's clock",
		"internal/sandbox/container":  "a monitor is a process of its own that writes times into logs",
		"test":                        "tests only",
	}
}

// checkClock checks that other packages get the clock and the random source as arguments.
func checkClock(tree []*source) []violation {
	var dirs []string
	for r := range clockPackages() {
		dirs = append(dirs, r)
	}
	return calls(tree,
		func(s *source) bool { return !s.test() && !s.in(dirs...) },
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
