// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// world is a pod whose eth0, and blue's link without addresses, are connected to a namespace far.
type world struct {
	t        *testing.T
	pod, far *netns.NS
	Config
}

const blueLink = "pod16477688c0e" // KubeVirt's name for blue's link

func newWorld(t *testing.T) *world {
	t.Helper()
	nettest.Need(t, "tap")
	w := &world{t: t, pod: nettest.NS(t, "pod"), far: nettest.NS(t, "far")}
	w.Config = Config{Dir: filepath.Join(t.TempDir(), "vm"), Log: slog.New(slog.DiscardHandler)}
	// No duplicate address detection: neighbor solicitation must not wait for it.
	nettest.Run(t, w.pod, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
	for link, wire := range map[string]string{"eth0": "wire", blueLink: "wireb"} {
		w.ip(w.far, "link add "+wire+" type veth peer name "+link+" netns "+w.pod.Path())
		w.ip(w.pod, "link set "+link+" address "+state.SeedMAC(link).String()+" mtu 1450")
		w.ip(w.pod, "link set "+link+" alias weft:net/c0ffee/"+link)
		w.ip(w.far, "link set "+wire+" up")
		w.ip(w.pod, "link set "+link+" up")
	}
	w.ip(w.pod, "link set lo up")
	return w
}

func (w *world) ip(ns *netns.NS, line string) {
	w.t.Helper()
	nettest.IP(w.t, ns, line)
}

// flannel configures the pod's link as flannel does, routed as Calico does.
func (w *world) flannel() { nettest.ConfigureSubnet(w.t, w.pod, w.far) }
func (w *world) routed()  { nettest.ConfigureRouted(w.t, w.pod, w.far) }

// runtimeUser is the user that hypervisors run as, or root if the user namespace has only root.
func runtimeUser() uint32 {
	const usual = 107
	m, err := os.ReadFile("/proc/self/uid_map")
	var inside, outside, count uint64
	if _, scanErr := fmt.Sscan(string(m), &inside, &outside, &count); err != nil || scanErr != nil ||
		inside+count <= usual {
		return 0
	}
	return usual
}

// testInput returns a VM with bindings: the first one on the pod's network, the second on blue.
func testInput(bindings ...model.VMBinding) plan.Input {
	vm := model.VM{Namespace: "shop", Name: "vm1", Path: "spec", Owner: runtimeUser(), Hostname: "vm1"}
	for i, b := range bindings {
		nic := model.VMInterface{Name: "default", Index: i, Binding: b, Model: "virtio"}
		nic.Network = model.VMNetwork{
			Name: "default", Primary: true, Pod: true, CIDR4: netip.MustParsePrefix("10.0.2.0/24"),
			CIDR6: netip.MustParsePrefix("fd10:0:2::/120"),
		}
		if i > 0 {
			nic.Name, nic.Network = "blue", model.VMNetwork{Name: "blue", Index: i, Definition: "blue"}
		}
		vm.Interfaces = append(vm.Interfaces, nic)
	}
	return plan.Input{VM: vm}
}

func (w *world) start(in plan.Input) Record {
	w.t.Helper()
	r, err := w.Start(w.t.Context(), w.pod, "pod1", in)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) undo() {
	w.t.Helper()
	if err := w.Undo(w.t.Context(), w.pod, "pod1", "shop/vm1"); err != nil {
		w.t.Fatal(err)
	}
	if left, err := os.ReadDir(w.Dir); err != nil || len(left) > 0 {
		w.t.Errorf("left on disk: %v (%v)", left, err)
	}
}

// dump returns the pod's network configuration.
func (w *world) dump() string {
	w.t.Helper()
	c, err := kernel.Dial(w.pod)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	s, err := c.ReadAll(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, l := range s.Links {
		l.Port = nil
		out = append(out, l.String())
	}
	for _, a := range s.Addrs {
		out = append(out, fmt.Sprintf("%s, without a broadcast address: %t", a, a.NoBroadcast))
	}
	for _, r := range s.Routes {
		out = append(out, r.String())
	}
	names := []string{
		"net/ipv4/conf/all/arp_ignore", "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding",
		"net/ipv6/conf/eth0/disable_ipv6",
	}
	for _, name := range names {
		err := w.pod.Do(func() error {
			b, err := os.ReadFile("/proc/sys/" + name)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			out = append(out, name+" = "+strings.TrimSpace(string(b)))
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for _, link := range []string{"eth0", blueLink} {
		// A missing filter or link is not an error.
		filters, _ := nettest.Try(w.pod, "tc", "filter", "show", "dev", link, "ingress")
		for range strings.Count(filters, "filter ") {
			out = append(out, "a filter on "+link)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n") + "\n" + nettest.Run(w.t, w.pod, "nft", "-s", "list", "ruleset")
}

// expectApplied compares the pod with a record.
func (w *world) expectApplied(r Record) {
	w.t.Helper()
	s, closeAll, err := dial(w.pod)
	if err != nil {
		w.t.Fatal(err)
	}
	defer closeAll()
	for _, f := range append([]state.Fragment{r.Shared.Fragment}, fragments(r)...) {
		have, err := s.Pod.Read(w.t.Context(), f.Pod)
		if err != nil {
			w.t.Fatal(err)
		}
		if d := cmp.Diff(f.Pod, have, comparers()); d != "" {
			w.t.Errorf("%s (-want +have):\n%s", f.Owner, d)
		}
		diff, err := s.Diff(w.t.Context(), f)
		if err != nil || len(diff) > 0 {
			w.t.Errorf("%s: %v %v", f.Owner, diff, err)
		}
	}
	for _, n := range r.Networks {
		if n.State != Finished {
			w.t.Errorf("network %s is %s", n.Interface.Name, n.State)
		}
	}
}

func fragments(r Record) []state.Fragment {
	var out []state.Fragment
	for _, n := range r.Networks {
		out = append(out, n.Fragment)
	}
	return out
}

func sorted(elements []state.Element) string {
	var out []string
	for _, e := range elements {
		out = append(out, fmt.Sprintf("%+v", e))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func comparers() cmp.Option {
	return cmp.Options{
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b []state.Element) bool { return sorted(a) == sorted(b) }),
	}
}

// writes counts the changes of a call in the pod.
func (w *world) writes(f func(kernel.Spaces) error) int {
	w.t.Helper()
	s, closeAll, err := dial(w.pod)
	if err != nil {
		w.t.Fatal(err)
	}
	defer closeAll()
	if err := f(s); err != nil {
		w.t.Fatal(err)
	}
	return s.Pod.Writes() + s.Host.Writes()
}

func applyAll(ctx context.Context, s kernel.Spaces, r Record) error {
	for _, f := range append([]state.Fragment{r.Shared.Fragment}, fragments(r)...) {
		if err := s.Apply(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f.Owner, err)
		}
	}
	return nil
}
