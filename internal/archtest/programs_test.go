// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// pkg is a package as `go list -deps` prints it.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

// closure returns all dependencies of a package.
func closure(t *testing.T, target string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports", target)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list -deps %s: %v\n%s", target, err, exit.Stderr)
		}
		t.Fatalf("go list -deps %s: %v", target, err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// chain returns the import chain from a program to a package: "weft-cni → shim → model".
func chain(all []pkg, to string) string {
	for i := len(all) - 1; i >= 0; i-- {
		p := all[i]
		if slices.Contains(p.Imports, to) && !p.Standard {
			if i == len(all)-1 {
				return strings.TrimPrefix(p.ImportPath, module) + " → " + to
			}
			return chain(all, p.ImportPath) + " → " + to
		}
	}
	return to
}

// TestPrograms checks the transitive dependencies of programs and packages.
func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		target, reason string
		allowed        func(p string) bool
	}{
		{
			"./cmd/weft-cni",
			"weft-cni starts once for each call, in about the time of an empty program: it links only the standard " +
				"library (without net/http), shim and wire", func(p string) bool {
				return isStd(p) && !below(p, "net/http", "html", "text/template") ||
					below(p, module+"cmd/weft-cni", module+"internal/cni/shim", module+"internal/cni/wire")
			},
		},
		{
			"./cmd/weft-plugin",
			"weft-plugin starts once for each call: no Kubernetes, no database, no command line library, no web server, no eBPF",
			func(p string) bool {
				return !below(p, "k8s.io", "sigs.k8s.io", "go.etcd.io", "github.com/spf13", "net/http", "google.golang.org",
					"github.com/cilium")
			},
		},
		{
			"./cmd/weft-guest",
			"weft-guest runs next to a guest, without privileges and in little memory: it links only the standard library, " +
				"constants of system calls, and the protocols for guests", func(p string) bool {
				return isStd(p) && !below(p, "net/http", "html", "text/template") || p == "golang.org/x/sys/unix" ||
					below(p, module+"cmd/weft-guest", module+"internal/guest", module+"internal/goflag", module+"internal/model")
			},
		},
		{
			"./cmd/weft",
			"weft is the operator's command line: it queries the agent and the cluster, and executes other programs for the rest",
			func(p string) bool {
				return !below(p, module+"internal/node/agent", module+"internal/node/cniserver", module+"internal/endpoint/ledger",
					module+"internal/flannel/flanneld", module+"internal/lab",
					module+"internal/sandbox/engine", module+"internal/bench", module+"internal/conformance",
					module+"internal/vm/launch", module+"internal/vm/qemu",
					"kubevirt.io", "libvirt.org", "github.com/google/go-cmp")
			},
		},
		{
			"./cmd/weft-agent",
			"weft-agent runs as root on each node: a security review should not have to read the lab, the kubelet, the page, benchmarks, the " +
				"conformance kit and hypervisor libraries", func(p string) bool {
				return !below(p, module+"internal/lab", module+"internal/sandbox", module+"internal/bench",
					module+"internal/conformance", module+"internal/lab/connectivity",
					module+"internal/cli/graph", module+"internal/web", module+"internal/vm/launch", module+"internal/vm/qemu",
					module+"internal/vm/libvirt",
					"kubevirt.io", "libvirt.org",
					"github.com/google/go-cmp", "k8s.io/api", "testing")
			},
		},
		{
			"./cmd/weft-controller", "weft-controller works on the cluster's objects only, not on a kernel",
			func(p string) bool {
				return !below(p, module+"internal/kernel", module+"internal/netns", module+"internal/endpoint/attach",
					module+"internal/node/agent", module+"internal/node/cniserver",
					"github.com/vishvananda", "github.com/cilium", "kubevirt.io", "libvirt.org", "github.com/google/go-cmp")
			},
		},
		{
			"./cmd/cni-conformance",
			"the kit must be independent of the code that it tests: it may use weft's types and namespaces, and no driver",
			func(p string) bool {
				return !below(p, module+"internal/kernel", module+"internal/endpoint/attach", module+"internal/node/agent",
					"k8s.io", "sigs.k8s.io", "go.etcd.io", "net/http")
			},
		},
		{
			"./internal/plan/...", "a plan can be replayed from a bug report", func(p string) bool {
				return isStd(p) || below(p, module+"internal/plan", module+"internal/model", module+"internal/state")
			},
		},
		{
			"./internal/kernel/...", "a driver that knows pods gets special cases for them", func(p string) bool {
				return !below(p, module+"internal") ||
					below(p, module+"internal/kernel", module+"internal/state", module+"internal/netns", module+"internal/inotify")
			},
		},
		{
			"./internal/state", "data types without behavior",
			func(p string) bool { return isStd(p) || p == module+"internal/state" },
		},
		{
			"./internal/model", "data types without behavior",
			func(p string) bool { return isStd(p) || p == module+"internal/model" },
		},
	} {
		t.Run(strings.Trim(c.target, "./"), func(t *testing.T) {
			all := closure(t, c.target)
			for _, p := range all {
				if !c.allowed(p.ImportPath) && !strings.HasPrefix(p.ImportPath, "vendor/") {
					t.Errorf("%s\n\tthe law: %s", chain(all, p.ImportPath), c.reason)
				}
			}
		})
	}
}
