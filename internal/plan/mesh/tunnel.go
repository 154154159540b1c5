// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Tunnel is a tunnel that a process in user space runs because the kernel has no such device. The process that runs the
// reconciler runs it (reconcile.Runner); its device, addresses and routes are in the plan as all others.
type Tunnel struct {
	// Backend is the tunnel's backend, and Link the name of its device, which identifies the tunnel.
	Backend string `json:"backend"`
	Link    string `json:"link"`
	// Local is the address that it listens on.
	Local netip.AddrPort `json:"local,omitzero"`
	// MTU is the MTU of its device, in bytes.
	MTU int `json:"mtu,omitempty"`
	// KeyFile is the file of the private key, PSKFile that of the preshared key: never the keys themselves.
	KeyFile string `json:"keyFile,omitempty"`
	PSKFile string `json:"pskFile,omitempty"`
	// Options are the backend's own.
	Options map[string]string `json:"options,omitempty"`
	Peers   []TunnelPeer      `json:"peers,omitempty"`
	// Sources are the inner source addresses that it accepts, if no key authenticates the peer.
	Sources *Sources `json:"sources,omitempty"`
}

// Sources are the inner source addresses that a tunnel accepts from its peers: the same as in the table GuardTable,
// which checks only the first of datagrams that are received together (GRO).
type Sources struct {
	Senders []Sender `json:"senders,omitempty"`
	// Outside are the source prefixes that any peer may use, except those in Cluster.
	Outside []netip.Prefix `json:"outside,omitempty"`
	Cluster []netip.Prefix `json:"cluster,omitempty"`
	// Relays are the pairs of a peer's address and a destination for which any sender's packets are accepted.
	Relays []RelayedAddr `json:"relays,omitempty"`
}

// RelayedAddr is an address of a peer, and the destination of the packets that it forwards.
type RelayedAddr struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
}

// Sender is a peer's addresses, and the inner source prefixes of its packets.
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
	// Endpoint is the peer's underlay address and port.
	Endpoint netip.AddrPort `json:"endpoint"`
	// Further are the node's other addresses of the prefix's family, from which it may reply to pods.
	Further []netip.Addr `json:"further,omitempty"`
	// PublicKey is the peer's public key, if the backend has keys.
	PublicKey string `json:"publicKey,omitempty"`
	// Options are the backend's own.
	Options map[string]string `json:"options,omitempty"`
}

// String returns the prefix and its endpoint.
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

// tunnelLines returns the output lines of the tunnels' peers, by node name.
func (t Topology) tunnelLines() map[string][]string {
	out := map[string][]string{}
	for _, tunnel := range t.Tunnels {
		for _, p := range tunnel.Peers {
			out[p.Node] = append(out[p.Node], "tunnel "+tunnel.Link+" to "+p.String())
		}
	}
	return out
}

// withTunnels adds tunnels; one of a known link adds its peers.
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
