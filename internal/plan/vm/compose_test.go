// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/state"
)

// attached returns what an attachment has created, with everything that a VM's network can change.
func attached() state.Fragment {
	ip := netip.MustParsePrefix("10.1.0.2/24")
	return state.Fragment{
		Owner: "a",
		Host: state.Space{
			Links:  []state.Link{{Name: "veth1", Kind: state.Veth, Peer: &state.Peer{Space: state.Pod, Name: "eth0"}}},
			Neighs: []state.Neigh{{Link: "veth1", IP: ip.Addr(), MAC: state.SeedMAC("eth0")}},
		},
		Pod: state.Space{
			Links: []state.Link{
				{
					Name: "eth0", Kind: state.Veth, MAC: state.SeedMAC("eth0"), MTU: 1400,
					Peer: &state.Peer{Space: state.Host, Name: "veth1"},
				},
			},
			Addrs:  []state.Addr{{Link: "eth0", Prefix: ip}},
			Routes: []state.Route{{Link: "eth0", Dst: netip.MustParsePrefix("0.0.0.0/0"), Gw: netip.MustParseAddr("10.1.0.1")}},
			Neighs: []state.Neigh{{Link: "eth0", IP: netip.MustParseAddr("10.1.0.1"), MAC: state.SeedMAC("gw")}},
			Qdiscs: []state.Qdisc{{Link: "eth0"}},
			Sysctls: []state.Sysctl{
				{Name: forward4, Value: "0"},
				{Name: "net/ipv4/conf/eth0/arp_notify", Value: "1"},
				{Name: "net/core/somaxconn", Value: "9"},
			},
		},
	}
}

// TestCompose: the VM's settings take precedence, and what belongs to a name is moved with it.
func TestCompose(t *testing.T) {
	before := attached()
	pod := Step{Fragment: state.Fragment{Pod: state.Space{Sysctls: []state.Sysctl{{Name: forward4, Value: "1"}}}}}
	moved := state.Link{
		Name: "eth0-nic", MovedFrom: &state.Origin{Space: state.Pod, Name: "eth0"}, Master: "k6t-eth0", MAC: state.SeedMAC("port"),
	}
	standIn := state.Link{Name: "eth0", Kind: state.Dummy, MAC: state.SeedMAC("eth0")}
	own := state.Addr{Link: "eth0", Prefix: netip.MustParsePrefix("10.1.0.2/24"), NoDAD: true}
	n := Network{PodLink: "eth0", Step: Step{Fragment: state.Fragment{
		Host: state.Space{Neighs: []state.Neigh{{Link: "veth1", IP: own.Prefix.Addr(), MAC: state.SeedMAC("guest")}}},
		Pod:  state.Space{Links: []state.Link{moved, standIn}, Addrs: []state.Addr{own}},
	}}}
	got := Compose(attached(), "eth0", pod, []Network{n})
	want := attached()
	want.Host.Links[0].Peer = &state.Peer{Space: state.Pod, Name: "eth0-nic"}
	want.Host.Neighs[0].MAC = state.SeedMAC("guest")
	port := want.Pod.Links[0]
	port.Name, port.Master, port.MAC = "eth0-nic", "k6t-eth0", state.SeedMAC("port")
	want.Pod.Links = []state.Link{port, standIn}
	want.Pod.Addrs, want.Pod.Routes, want.Pod.Neighs = []state.Addr{own}, []state.Route{}, []state.Neigh{}
	want.Pod.Qdiscs[0].Link = "eth0-nic"
	want.Pod.Sysctls = want.Pod.Sysctls[2:]
	comparers := cmp.Options{
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	}
	if d := cmp.Diff(want, got, comparers); d != "" {
		t.Errorf("(-want +have):\n%s", d)
	}
	other := Network{PodLink: "net1", Step: n.Step}
	got = Compose(attached(), "eth0", pod, []Network{other})
	want = attached()
	want.Pod.Sysctls = want.Pod.Sysctls[1:]
	if d := cmp.Diff(want, got, comparers); d != "" {
		t.Errorf("another network's (-want +have):\n%s", d)
	}
	if d := cmp.Diff(attached(), before, comparers); d != "" {
		t.Errorf("what was given has changed:\n%s", d)
	}
}
