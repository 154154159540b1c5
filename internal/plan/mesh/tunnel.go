// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Tunnel is what a process in user space keeps because the kernel has no such device: a value, in Topology.Tunnels.
// Whoever runs the reconciler runs it (reconcile.Runner); its device, addresses and routes are in the plan as all
// others.
type Tunnel struct {
	// Backend is whose it is, and Link the name of its device, which tells tunnels apart.
	Backend string `json:"backend"`
	Link    string `json:"link"`
	// Local is what it listens on.
	Local netip.AddrPort `json:"local,omitzero"`
	// MTU is its device's, in bytes.
	MTU int `json:"mtu,omitempty"`
	// KeyFile is the file of the private key, PSKFile that of the key shared by all: never the keys themselves.
	KeyFile string `json:"keyFile,omitempty"`
	PSKFile string `json:"pskFile,omitempty"`
	// Options are the back end's own.
	Options map[string]string `json:"options,omitempty"`
	Peers   []TunnelPeer      `json:"peers,omitempty"`
	// Sources are the inner source addresses that it accepts, where no key of a peer says so.
	Sources *Sources `json:"sources,omitempty"`
}

// Sources are the inner source addresses that a tunnel accepts of its peers: the same as the table GuardTable, which
// sees only the first of datagrams that arrive together.
type Sources struct {
	Senders []Sender `json:"senders,omitempty"`
	// Outside are what any peer may send from, but for what is in Cluster.
	Outside []netip.Prefix `json:"outside,omitempty"`
	Cluster []netip.Prefix `json:"cluster,omitempty"`
	// Relays are from which address of a peer packets for an address may come that are any sender's.
	Relays []RelayedTo `json:"relays,omitempty"`
}

// RelayedTo is an address of a peer, and where what it passes on goes to.
type RelayedTo struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
}

// Sender is a peer by its addresses, and where its packets may come from.
type Sender struct {
	Addrs    []netip.Addr   `json:"addrs"`
	Prefixes []netip.Prefix `json:"prefixes"`
}

// String prints the tunnel without its peers.
func (t Tunnel) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tunnel %s %s", t.Backend, t.Link)
	if t.Local.IsValid() {
		fmt.Fprintf(&b, " on %s", t.Local)
	}
	if t.KeyFile != "" {
		fmt.Fprintf(&b, " key %s", t.KeyFile)
	}
	if t.PSKFile != "" {
		fmt.Fprintf(&b, " psk %s", t.PSKFile)
	}
	if t.Options[OptionUserSpace] != "" {
		b.WriteString(" in user space")
	}
	return b.String()
}

// TunnelPeer is one prefix of a peer behind a tunnel.
type TunnelPeer struct {
	Node string       `json:"node"`
	CIDR netip.Prefix `json:"cidr"`
	// Endpoint is the far end.
	Endpoint netip.AddrPort `json:"endpoint"`
	// Further are the node's other addresses of the prefix's family, from which it may answer to pods.
	Further []netip.Addr `json:"further,omitempty"`
	// PublicKey is the peer's, where the back end has such.
	PublicKey string `json:"publicKey,omitempty"`
	// Options are the back end's own.
	Options map[string]string `json:"options,omitempty"`
}

// String prints where the prefix is.
func (p TunnelPeer) String() string {
	s := fmt.Sprintf("%s at %s", p.CIDR, p.Endpoint.Addr())
	if p.Endpoint.Port() != 0 {
		s = fmt.Sprintf("%s at %s", p.CIDR, p.Endpoint)
	}
	if p.PublicKey != "" {
		s += " key " + p.PublicKey
	}
	return s
}

// tunnelLines are what the tunnels say of each peer, by name.
func (t Topology) tunnelLines() map[string][]string {
	out := map[string][]string{}
	for _, tunnel := range t.Tunnels {
		for _, p := range tunnel.Peers {
			out[p.Node] = append(out[p.Node], "tunnel "+tunnel.Link+" to "+p.String())
		}
	}
	return out
}

// withTunnels adds tunnels; one of a link that is there already adds its peers.
func withTunnels(have, more []Tunnel) []Tunnel {
	for _, t := range more {
		i := slices.IndexFunc(have, func(o Tunnel) bool { return o.Link == t.Link })
		if i < 0 {
			have = append(have, t)
			continue
		}
		have[i].Peers = append(have[i].Peers, t.Peers...)
	}
	return have
}
