// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"slices"
	"strings"
)

// ours returns the directory of an import path of this module.
func ours(imported string) (dir string, ok bool) { return strings.CutPrefix(imported, module) }

// isStd reports whether an import path is of the standard library.
func isStd(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// below reports whether a path is one of the roots or below one.
func below(p string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return p == r || strings.HasPrefix(p, r+"/") })
}

// forbid reports the bad imports of the chosen files.
func forbid(tree []*source, chosen func(*source) bool, bad func(imported string) bool) []violation {
	var out []violation
	for _, s := range tree {
		if !chosen(s) {
			continue
		}
		for _, i := range s.tree.Imports {
			if p := strings.Trim(i.Path.Value, `"`); bad(p) {
				out = append(out, s.violation(i.Pos(), "imports %s", p))
			}
		}
	}
	return out
}

// impure is the part of the standard library that has effects, or depends on more than its arguments.
func impure() []string {
	return []string{
		"os", "net", "time", "context", "log", "syscall", "unsafe", "runtime", "testing", "plugin", "database", "C",
		"math/rand", "crypto/rand", "io/ioutil", "path/filepath", "embed", "flag", "sync", "html", "text/template", "expvar",
	}
}

// checkPlan checks that plan/* imports only model, state, itself and the pure part of the standard library.
func checkPlan(tree []*source) []violation {
	return forbid(tree,
		func(s *source) bool { return s.in("internal/plan") && !s.test() },
		func(p string) bool {
			if dir, ok := ours(p); ok {
				return !below(dir, "internal/model", "internal/state", "internal/plan")
			}
			return !isStd(p) || p != "net/netip" && below(p, impure()...)
		})
}

// checkKernel checks that kernel/* imports only state and netns of this module.
func checkKernel(tree []*source) []violation {
	return forbid(tree,
		func(s *source) bool { return s.in("internal/kernel") && !s.test() },
		func(p string) bool {
			dir, ok := ours(p)
			return ok && !below(dir, "internal/kernel", "internal/state", "internal/netns")
		})
}

// checkLang checks that kernel/nft/lang imports only state and the pure part of the standard library; of x/sys it may use
// constants, whose names are upper case.
func checkLang(tree []*source) []violation {
	const constants = "golang.org/x/sys/unix"
	lang := func(s *source) bool { return s.in("internal/kernel/nft/lang") && !s.test() }
	imports := forbid(tree, lang, func(p string) bool {
		if dir, ok := ours(p); ok {
			return dir != "internal/state"
		}
		return p != constants && (!isStd(p) || p != "net/netip" && below(p, impure()...))
	})
	return append(imports, calls(tree, lang, func(imported, name string) bool {
		return imported == constants && name != strings.ToUpper(name)
	})...)
}

// checkModel checks that model and state import only the standard library, without the clock, logging and files.
func checkModel(tree []*source) []violation {
	return forbid(tree,
		func(s *source) bool { return s.in("internal/model", "internal/state") && !s.test() },
		func(p string) bool { return !isStd(p) || below(p, "os", "time", "context", "log", "net/http") })
}

// checkKubernetes checks that only store/kube, cli/kube and the generated client import client-go, and that of weft's own
// packages only the first two import the client. Of the command line only cli/kube imports
// store/kube. Only packages at the border import Kubernetes' types.
func checkKubernetes(tree []*source) []violation {
	clients := forbid(tree,
		func(s *source) bool {
			return !s.in("internal/cluster/store/kube", "internal/cli/kube", "internal/release", "pkg/client") && !s.test()
		},
		func(p string) bool {
			dir, ok := ours(p)
			if p == "k8s.io/client-go/util/jsonpath" {
				return false // a language of templates, without a client
			}
			return below(p, "k8s.io/client-go", "sigs.k8s.io/controller-runtime") || ok && below(dir, "pkg/client")
		})
	servers := forbid(tree,
		func(s *source) bool { return s.in("internal/cli") && !s.in("internal/cli/kube") && !s.test() },
		func(p string) bool {
			dir, ok := ours(p)
			return ok && below(dir, "internal/cluster/store/kube")
		})
	types := forbid(tree,
		func(s *source) bool {
			return !s.in("api", "pkg/client", "internal/cluster/store", "internal/sandbox", "internal/node/cri",
				"internal/multinet", "internal/vm", "internal/cli/kube", "internal/release") && !s.test()
		},
		func(p string) bool {
			if p == "k8s.io/apimachinery/pkg/util/json" || p == "k8s.io/apimachinery/pkg/util/duration" {
				return false // the first decodes whole numbers as such, the second formats ages; they have no types
			}
			return below(p, "k8s.io", "kubevirt.io") && !below(p, "k8s.io/client-go")
		})
	return slices.Concat(clients, servers, types)
}

// checkNetlink checks that only kernel/*, guest and netns import netlink, nftables or ebpf; so may test kits and
// benchmarks, which must not depend on the code that they test.
func checkNetlink(tree []*source) []violation {
	return forbid(tree,
		func(s *source) bool {
			return !s.in("internal/kernel", "internal/guest", "internal/netns", "internal/nettest", "internal/conformance",
				"internal/bench") &&
				!s.test()
		},
		func(p string) bool {
			return below(p, "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "github.com/mdlayher/netlink",
				"github.com/google/nftables", "github.com/cilium/ebpf", "github.com/jsimonetti/rtnetlink")
		})
}
