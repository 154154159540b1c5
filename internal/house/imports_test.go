// SPDX-License-Identifier: Apache-2.0

package house

import (
	"slices"
	"strings"
)

// ours gives the room of an import path of this module.
func ours(imported string) (room string, ok bool) { return strings.CutPrefix(imported, module) }

// isStd tells whether an import path is of the standard library.
func isStd(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// below tells whether a path is one of the roots or below one.
func below(p string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return p == r || strings.HasPrefix(p, r+"/") })
}

// forbid walks over the imports of the files that are chosen.
func forbid(tree []*source, chosen func(*source) bool, bad func(imported string) bool) []breach {
	var out []breach
	for _, s := range tree {
		if !chosen(s) {
			continue
		}
		for _, i := range s.tree.Imports {
			if p := strings.Trim(i.Path.Value, `"`); bad(p) {
				out = append(out, s.breach(i.Pos(), "imports %s", p))
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

// checkPlan: plan/* imports model, state, itself and the pure part of the standard library.
func checkPlan(tree []*source) []breach {
	return forbid(tree,
		func(s *source) bool { return s.in("internal/plan") && !s.test() },
		func(p string) bool {
			if room, ok := ours(p); ok {
				return !below(room, "internal/model", "internal/state", "internal/plan")
			}
			return !isStd(p) || p != "net/netip" && below(p, impure()...)
		})
}

// checkKernel: kernel/* never imports model, store or plan.
func checkKernel(tree []*source) []breach {
	return forbid(tree,
		func(s *source) bool { return s.in("internal/kernel") && !s.test() },
		func(p string) bool {
			room, ok := ours(p)
			return ok && !below(room, "internal/kernel", "internal/state", "internal/netns")
		})
}

// checkLang: kernel/nft/lang imports state and the pure part of the standard library; of x/sys it uses constants, which
// are those names without a small letter.
func checkLang(tree []*source) []breach {
	const constants = "golang.org/x/sys/unix"
	lang := func(s *source) bool { return s.in("internal/kernel/nft/lang") && !s.test() }
	imports := forbid(tree, lang, func(p string) bool {
		if room, ok := ours(p); ok {
			return room != "internal/state"
		}
		return p != constants && (!isStd(p) || p != "net/netip" && below(p, impure()...))
	})
	return append(imports, calls(tree, lang, func(imported, name string) bool {
		return imported == constants && name != strings.ToUpper(name)
	})...)
}

// checkWords: model and state import nothing of ours, of k8s.io or of netlink.
func checkWords(tree []*source) []breach {
	return forbid(tree,
		func(s *source) bool { return s.in("internal/model", "internal/state") && !s.test() },
		func(p string) bool { return !isStd(p) || below(p, "os", "time", "context", "log", "net/http") })
}

// checkKubernetes: only store/kube and cli/kube, the command line's way to it, and the generated client may import
// client-go; of weft's own rooms only these two may use the client. Of the command line only cli/kube imports
// store/kube. Only the rooms at the border import Kubernetes' types.
func checkKubernetes(tree []*source) []breach {
	clients := forbid(tree,
		func(s *source) bool {
			return !s.in("internal/cluster/store/kube", "internal/cli/kube", "pkg/client") && !s.test()
		},
		func(p string) bool {
			room, ok := ours(p)
			return below(p, "k8s.io/client-go", "sigs.k8s.io/controller-runtime") || ok && below(room, "pkg/client")
		})
	servers := forbid(tree,
		func(s *source) bool { return s.in("internal/cli") && !s.in("internal/cli/kube") && !s.test() },
		func(p string) bool {
			room, ok := ours(p)
			return ok && below(room, "internal/cluster/store/kube")
		})
	types := forbid(tree,
		func(s *source) bool {
			return !s.in("api", "pkg/client", "internal/cluster/store", "internal/sandbox", "internal/node/cri",
				"internal/multinet", "internal/vm") && !s.test()
		},
		func(p string) bool {
			return below(p, "k8s.io", "kubevirt.io") && !below(p, "k8s.io/client-go")
		})
	return slices.Concat(clients, servers, types)
}

// checkNetlink: only kernel/*, guest and netns import netlink, nftables or ebpf; what measures and judges may too, so
// that weft is not judged by its own readers.
func checkNetlink(tree []*source) []breach {
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
