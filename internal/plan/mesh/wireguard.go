// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Wireguard is how the back end wireguard works. Its keys are those of flannel's net-conf.json, but for the secrets: of
// these a plan knows only the files.
type Wireguard struct {
	// ListenPort is the UDP port, ListenPortV6 that of the device for IPv6 where there are two; 0 is 51820 and 51821.
	ListenPort, ListenPortV6 uint16
	// MTU is that of the interface to the other nodes, in bytes; 0 is what it has. The devices have 80 less.
	MTU int
	// KeyFile is the file of the private key; empty is flannel's. PSKFile is the file of a key that all nodes share.
	KeyFile, PSKFile string
	// PersistentKeepaliveInterval is how often a peer hears of this node though there is nothing to say, in seconds; 0 is
	// never.
	PersistentKeepaliveInterval int
	// Mode is separate (a device for each family), or ipv4, ipv6, auto: one device, whose packets travel over that family.
	// Empty is separate.
	Mode string
}

// Modes of the back end wireguard.
const (
	ModeSeparate = "separate"
	ModeAuto     = "auto"
	ModeIPv4     = "ipv4"
	ModeIPv6     = "ipv6"
)

const (
	// DefaultKeyFile is where flannel keeps the private key.
	DefaultKeyFile    = "/run/flannel/wgkey"
	wireguardOverhead = 80
	wireguardLink     = "flannel-wg"
	wireguardLinkV6   = "flannel-wg-v6"
	maxKeepalive      = 65535
	leastMTU          = 576
)

// WireguardLearned is what the Runner says for wireguard, in JSON.
type WireguardLearned struct {
	PublicKey string `json:"publicKey"`
	// UserSpace tells that the kernel has no WireGuard, so that a program keeps the devices.
	UserSpace bool `json:"userSpace,omitempty"`
}

// wireguardData is what a node publishes, as flannel writes it.
type wireguardData struct {
	PublicKey string `json:"PublicKey"`
	Port      uint16 `json:"Port"`
}

func wireguardRow() Backend {
	return Backend{
		Name:  "wireguard",
		Check: func(cfg Config) error { return cfg.Wireguard.check() },
		Node:  wireguardNode, Peer: wireguardPeer, Publish: wireguardPublish,
	}
}

func (w Wireguard) check() error {
	switch w.Mode {
	case "", ModeSeparate, ModeAuto, ModeIPv4, ModeIPv6:
	default:
		return model.Faultf(model.CodeInvalidConf, "known: separate, auto, ipv4, ipv6",
			"wireguard: Mode %q is not known", w.Mode)
	}
	if w.PersistentKeepaliveInterval < 0 || w.PersistentKeepaliveInterval > maxKeepalive {
		return model.Faultf(model.CodeInvalidConf, "seconds; 25 keeps the way through most address translators open",
			"wireguard: PersistentKeepaliveInterval %d is not between 0 and %d", w.PersistentKeepaliveInterval, maxKeepalive)
	}
	if w.MTU != 0 && (w.MTU < leastMTU || w.MTU > 65535) {
		return model.Faultf(model.CodeInvalidConf, "leave it out, and it is that of the interface to the other nodes",
			"wireguard: MTU %d is not between %d and 65535", w.MTU, leastMTU)
	}
	if w.separate() && w.port(4) == w.port(6) {
		return model.Faultf(model.CodeInvalidConf, "give the two devices different ports, or set Mode to auto",
			"wireguard: ListenPort and ListenPortV6 are both %d", w.port(4))
	}
	return nil
}

func (w Wireguard) separate() bool { return w.Mode == "" || w.Mode == ModeSeparate }

// port is where the device of a family listens.
func (w Wireguard) port(family int) uint16 {
	switch {
	case family == 6 && w.separate() && w.ListenPortV6 != 0:
		return w.ListenPortV6
	case family == 6 && w.separate():
		return 51821
	case w.ListenPort != 0:
		return w.ListenPort
	}
	return 51820
}

func (w Wireguard) keyFile() string {
	if w.KeyFile == "" {
		return DefaultKeyFile
	}
	return w.KeyFile
}

// link is the device that carries a family.
func (w Wireguard) link(family int) string {
	if family == 6 && w.separate() {
		return wireguardLinkV6
	}
	return wireguardLink
}

func (p *Planner) wireguardLearned() WireguardLearned {
	var l WireguardLearned
	_ = json.Unmarshal([]byte(p.Learned("wireguard")), &l) // nobody told anything: the kernel's, and no key to publish
	return l
}

func wireguardPublish(p *Planner, family int) string {
	l := p.wireguardLearned()
	if l.PublicKey == "" {
		return ""
	}
	b, err := json.Marshal(wireguardData{l.PublicKey, p.cfg.Wireguard.port(family)})
	if err != nil {
		return ""
	}
	return string(b)
}

// wireguardNode plans the devices.
func wireguardNode(p *Planner) Part {
	part, w := forwarding(p), p.cfg.Wireguard
	for _, family := range families() {
		u, ok := p.underlay[family]
		if !ok {
			continue
		}
		name := w.link(family)
		known := len(part.Host.Links) > 0 && part.Host.Links[len(part.Host.Links)-1].Name == name
		mtu := u.MTU
		if w.MTU > 0 {
			mtu = w.MTU
		}
		if !known {
			l := p.device(name, mtu-wireguardOverhead, &part)
			l.Kind = state.Wireguard
			if p.wireguardLearned().UserSpace {
				l.Kind, l.Tun = state.Tap, &state.TunAttrs{IP: true}
			}
			part.Host.Links = append(part.Host.Links, l)
			part.Untracked = append(part.Untracked, w.port(family))
			part.Tunnels = append(part.Tunnels, w.tunnel(l, family))
		}
		p.own(name, family, &part)
	}
	return part
}

// OptionUserSpace is in the options of a tunnel that the kernel does not carry.
const OptionUserSpace = "userSpace"

// OptionKeepalive is the seconds between signs of life.
const OptionKeepalive = "keepalive"

func (w Wireguard) tunnel(l state.Link, family int) Tunnel {
	t := Tunnel{
		Backend: "wireguard", Link: l.Name, MTU: l.MTU, KeyFile: w.keyFile(), PSKFile: w.PSKFile,
		// WireGuard listens on all addresses.
		Local: netip.AddrPortFrom(netip.IPv6Unspecified(), w.port(family)),
	}
	if l.Kind != state.Wireguard || w.PersistentKeepaliveInterval > 0 {
		t.Options = map[string]string{}
	}
	if l.Kind != state.Wireguard {
		t.Options[OptionUserSpace] = "true"
	}
	if w.PersistentKeepaliveInterval > 0 {
		t.Options[OptionKeepalive] = strconv.Itoa(w.PersistentKeepaliveInterval)
	}
	return t
}

// wireguardPeer leads a peer's prefix into the device, and tells the tunnel the peer's key and place.
func wireguardPeer(p *Planner, peer model.Node, cidr netip.Prefix) (Part, *Problem) {
	family := familyOf(cidr.Addr())
	if p.cfg.Backend != "wireguard" {
		return Part{}, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s is reached by wireguard, which this node does not use: that node would not let it in",
				peer.Name),
			"give both the back end wireguard, or that node another one",
		}
	}
	data, problem := p.wireguardKey(peer, family)
	if problem != nil {
		return Part{}, problem
	}
	outer := p.wireguardFamily(peer, family)
	far, ok := addrOf(peer, outer)
	if !ok || !p.has(outer) {
		return Part{}, &Problem{
			[]string{p.self.Name, peer.Name},
			fmt.Sprintf("nodes %s and %s do not both have an IPv%d address, over which wireguard is to reach %s", p.self.Name,
				peer.Name, outer, cidr),
			"give both an InternalIP of that family, or set Mode to the other one",
		}
	}
	r := p.Route(cidr)
	r.Link = p.cfg.Wireguard.link(family)
	return Part{
		Host: state.Space{Routes: []state.Route{r}},
		Tunnels: []Tunnel{{Backend: "wireguard", Link: r.Link, Peers: []TunnelPeer{{
			Node: peer.Name, CIDR: cidr, Endpoint: netip.AddrPortFrom(far, data.Port), Further: further(peer, far, family),
			PublicKey: data.PublicKey,
		}}}},
	}, nil
}

// further are a node's addresses of a family, but the one that its tunnel ends at.
func further(n model.Node, end netip.Addr, family int) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrsOf(n) {
		if a != end && familyOf(a) == family {
			out = append(out, a)
		}
	}
	return out
}

// wireguardFamily is the family that packets to a peer travel over.
func (p *Planner) wireguardFamily(peer model.Node, family int) int {
	switch w := p.cfg.Wireguard; {
	case w.separate():
		return family
	case w.Mode == ModeIPv4:
		return 4
	case w.Mode == ModeIPv6:
		return 6
	}
	far4, has4 := addrOf(peer, 4)
	far6, has6 := addrOf(peer, 6)
	switch {
	case !has6 || !p.has(6):
		return 4
	case !has4 || !p.has(4):
		return 6
	case far4.IsPrivate() && !far6.IsPrivate() && !p.underlay[6].Address.IsPrivate(): // what flannel chooses
		return 6
	}
	return 4
}

// wireguardKey is what a peer publishes. With one device for both families the port is that of the IPv4 side: flannel
// publishes for IPv6 one at which nobody listens then.
func (p *Planner) wireguardKey(peer model.Node, family int) (wireguardData, *Problem) {
	own := p.cfg.Wireguard.port(family)
	text := Data(peer, "wireguard", family)
	if other := Data(peer, "wireguard", 4); !p.cfg.Wireguard.separate() && other != "" && other != "null" {
		text = other
	}
	var d wireguardData
	if text == "" || text == "null" {
		return d, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s publishes no WireGuard key for IPv%d", peer.Name, family),
			"wait until it has started, or have it publish {\"PublicKey\":\"…\",\"Port\":51820}",
		}
	}
	wrong := func(why string) (wireguardData, *Problem) {
		return d, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s publishes for wireguard %s: %s", peer.Name, text, why),
			"have that node publish it anew: {\"PublicKey\":\"…\",\"Port\":51820}",
		}
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return wrong("this is no such object")
	}
	if key, err := base64.StdEncoding.DecodeString(d.PublicKey); err != nil || len(key) != 32 {
		return wrong("PublicKey is not 32 bytes in base64")
	}
	if d.PublicKey == p.wireguardLearned().PublicKey {
		return d, &Problem{
			[]string{p.self.Name, peer.Name},
			fmt.Sprintf("nodes %s and %s have the same WireGuard key", p.self.Name, peer.Name),
			fmt.Sprintf("delete the file %s of one of them, and restart it", p.cfg.Wireguard.keyFile()),
		}
	}
	if d.Port == 0 { // an older flannel
		d.Port = own
	}
	return d, nil
}
