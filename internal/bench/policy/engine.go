// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/weft-net/weft/internal/netns"
)

// Cell is a set of policies to program.
type Cell struct {
	// Policies is the number of policies that select the server's pod; the Peers are distributed over them.
	Policies int `json:"policies"`
	Peers    int `json:"peers"`
	// Blocks makes the peers address ranges (ipBlock) instead of pods.
	Blocks bool `json:"blocks,omitempty"`
}

func (c Cell) String() string {
	kind := "peers"
	if c.Blocks {
		kind = "ipBlocks"
	}
	return fmt.Sprintf("%d policies, %d %s", c.Policies, c.Peers, kind)
}

// engine programs a cell into a node's kernel. One value serves one node.
type engine interface {
	name() string
	// program allows only the cell's peers and the client to connect to the server's port.
	program(node *netns.NS, c Cell) error
	// addPeer allows one more peer, in the first policy.
	addPeer(node *netns.NS, c Cell, p netip.Prefix) error
	close()
}

// Engines returns the names of all engines.
func Engines() []string { return []string{"routed", "iptables", "calico", "kube-router", "weft"} }

func newEngine(name string) engine {
	switch name {
	case "iptables":
		return &rules{style: chains{}}
	case "calico":
		return &rules{style: calico{}}
	case "kube-router":
		return &rules{style: kubeRouter{}}
	case "weft":
		return &weft{}
	}
	return routed{}
}

// routed is the baseline: no rules.
type routed struct{}

func (routed) name() string                                { return "routed" }
func (routed) program(*netns.NS, Cell) error               { return nil }
func (routed) addPeer(*netns.NS, Cell, netip.Prefix) error { return nil }
func (routed) close()                                      {}

// peer returns peer i: a pod's address, or an address range.
func (c Cell) peer(i int) netip.Prefix {
	if c.Blocks {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(64 + i>>12), byte(i >> 4), byte(i<<4) & 0xf0, 0}), 28)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + i>>16), byte(i >> 8), byte(i)}), 32)
}

// peersOf returns the peers of one policy; the client is the last one of the last policy.
func (c Cell) peersOf(policy int) []netip.Prefix {
	var out []netip.Prefix
	for i := policy; i < c.Peers; i += c.Policies {
		out = append(out, c.peer(i))
	}
	if policy == c.Policies-1 {
		out = append(out, netip.PrefixFrom(clientAddr(), 32))
	}
	return out
}

// rules is an engine that writes iptables rules.
type rules struct{ style style }

// style is a way to write rules: input for ipset restore and iptables-restore.
type style interface {
	name() string
	sets(c Cell) string
	rules(c Cell) string
	// addPeer returns the input for one more peer.
	addPeer(c Cell, p netip.Prefix) (sets, rules string)
}

func (r *rules) name() string { return r.style.name() }
func (r *rules) close()       {}

func (r *rules) program(node *netns.NS, c Cell) error {
	return restore(node, r.style.sets(c), r.style.rules(c))
}

func (r *rules) addPeer(node *netns.NS, c Cell, p netip.Prefix) error {
	s, t := r.style.addPeer(c, p)
	return restore(node, s, t)
}

// restore runs the programs that Calico and kube-router run.
func restore(node *netns.NS, sets, rules string) error {
	for _, v := range []struct {
		text string
		argv []string
	}{{sets, []string{"ipset", "restore"}}, {rules, []string{"iptables-restore", "--noflush"}}} {
		if v.text == "" {
			continue
		}
		cmd := exec.Command(v.argv[0], v.argv[1:]...)
		var out strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(v.text), &out, &out
		err := node.Do(cmd.Start)
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(v.argv, " "), err, out.String())
		}
	}
	return nil
}
