// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// wires is the name of the namespace that holds the bridges; no node is called so.
const wires = "wires"

// bridges is what the namespace of the wires holds by itself.
func (l Layout) bridges() state.Fragment {
	f := state.Fragment{Owner: "lab/wires"}
	for _, w := range l.Wires {
		f.Host.Links = append(f.Host.Links, state.Link{
			Name: w.Name, Kind: state.Bridge, Up: state.On(), Bridge: &state.BridgeAttrs{McastSnooping: state.Off()},
		})
	}
	// The wires are a switch: they have no addresses and hear no router.
	f.Host.Sysctls = append(f.Host.Sysctls,
		state.Sysctl{Name: "net/ipv6/conf/all/disable_ipv6", Value: "1", IfPresent: true},
		state.Sysctl{Name: "net/ipv6/conf/default/disable_ipv6", Value: "1", IfPresent: true})
	return f
}

// node is node i with its cables: the host space is the wires', the pod space the node's.
func (l Layout) node(i int) state.Fragment {
	n := l.Nodes[i]
	f := state.Fragment{Owner: "lab/" + n.Name}
	f.Pod.Links = append(f.Pod.Links, state.Link{Name: "lo", Up: state.On()})
	// A node answers on each wire for itself, whatever the machine's own setting was.
	f.Pod.Sysctls = append(f.Pod.Sysctls,
		state.Sysctl{Name: "net/ipv4/conf/all/rp_filter", Value: "0"},
		state.Sysctl{Name: "net/ipv4/conf/default/rp_filter", Value: "0"})
	for w, wire := range l.Wires {
		eth, port := fmt.Sprintf("eth%d", w), fmt.Sprintf("%s-%d", n.Name, w)
		f.Host.Links = append(f.Host.Links, state.Link{
			Name: port, Kind: state.Veth, Master: wire.Name, Up: state.On(), Peer: &state.Peer{Space: state.Pod, Name: eth},
		})
		f.Pod.Links = append(f.Pod.Links, state.Link{
			Name: eth, Kind: state.Veth, Up: state.On(), MAC: n.mac(eth),
			Peer: &state.Peer{Space: state.Host, Name: port},
		})
		for _, p := range n.Addrs[w] {
			f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: eth, Prefix: p, NoDAD: true})
		}
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + eth + "/rp_filter", Value: "0"})
		f.Pod.Neighs = append(f.Pod.Neighs, l.neighbors(i, w)...)
	}
	return f
}

// neighbors are node i's entries for all others on a wire. They are written down, not learned, because the kernel has
// one limit of learned entries (gc_thresh3, 1024 a family) for all namespaces together, which 17 nodes come to by
// themselves and which somebody else on the machine may have used up.
func (l Layout) neighbors(i, w int) []state.Neigh {
	eth := fmt.Sprintf("eth%d", w)
	var out []state.Neigh
	for j, n := range l.Nodes {
		if j == i {
			continue
		}
		for _, p := range n.Addrs[w] {
			out = append(out, state.Neigh{Link: eth, IP: p.Addr(), MAC: n.mac(eth)})
		}
	}
	return out
}

func (n Node) mac(eth string) state.MAC { return state.SeedMAC("lab/" + n.Name + "/" + eth) }

// cable makes the wires and plugs the nodes in.
func (d Dir) cable(ctx context.Context, l Layout) (err error) {
	ns := map[string]*netns.NS{}
	defer func() {
		for _, n := range ns {
			_ = n.Close()
		}
	}()
	conns := map[string]*kernel.Conn{}
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	names := []string{wires}
	for _, n := range l.Nodes {
		names = append(names, n.Name)
	}
	for _, name := range names {
		if ns[name], err = netns.New(d.NS(name)); err != nil {
			delete(ns, name)
			return err
		}
		if conns[name], err = kernel.Dial(ns[name]); err != nil {
			delete(conns, name)
			return fmt.Errorf("namespace of %s: %w", name, err)
		}
	}
	if err := (kernel.Spaces{Host: conns[wires]}).Apply(ctx, l.bridges()); err != nil {
		return fmt.Errorf("wires: %w", err)
	}
	for i, n := range l.Nodes {
		s := kernel.Spaces{Host: conns[wires], Pod: conns[n.Name], PodNS: ns[n.Name]}
		if err := s.Apply(ctx, l.node(i)); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}
