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

// WireGuard is the configuration of backend wireguard. Its keys are those of flannel's net-conf.json, except for
// secrets: a plan has only the names of their files.
type WireGuard struct {
	// ListenPort is the UDP port, ListenPortV6 that of the device for IPv6 if there are two; 0 means 51820 and 51821.
	ListenPort, ListenPortV6 uint16
	// MTU is that of the interface to the other nodes, in bytes; 0 is the kernel's. The devices' MTU is 80 less.
	MTU int
	// KeyFile is the file of the private key; empty is flannel's. PSKFile is the file of the preshared key of all nodes.
	KeyFile, PSKFile string
	// PersistentKeepaliveInterval is the interval of keepalive packets, in seconds; 0 is never.
	PersistentKeepaliveInterval int
	// Mode is separate (a device for each family), or ipv4, ipv6, auto: one device, whose outer packets are of that
	// family. Empty is separate.
	Mode string
}

// Modes of backend wireguard.
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
	minMTU            = 576
)

// WireGuardLearned is the runtime data of backend wireguard, as JSON.
type WireGuardLearned struct {
	PublicKey string `json:"publicKey"`
	// UserSpace: the kernel has no WireGuard, so that a process in user space runs the devices.
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
		Check: func(cfg Config) error { return cfg.WireGuard.check() },
		Node:  wireguardNode, Peer: wireguardPeer, Publish: wireguardPublish,
	}
}

func (w WireGuard) check() error {
	switch w.Mode {
	case "", ModeSeparate, ModeAuto, ModeIPv4, ModeIPv6:
	default:
		return model.Errorf(model.CodeInvalidConf, "known: separate, auto, ipv4, ipv6",
			"wireguard: Mode %q is not known", w.Mode)
	}
	if w.PersistentKeepaliveInterval < 0 || w.PersistentKeepaliveInterval > maxKeepalive {
		return model.Errorf(model.CodeInvalidConf, "seconds; 25 keeps most NAT mappings open",
			"wireguard: PersistentKeepaliveInterval %d is not between 0 and %d", w.PersistentKeepaliveInterval, maxKeepalive)
	}
	if w.MTU != 0 && (w.MTU < minMTU || w.MTU > 65535) {
		return model.Errorf(model.CodeInvalidConf, "remove it to use the MTU of the interface to the other nodes",
			"wireguard: MTU %d is not between %d and 65535", w.MTU, minMTU)
	}
	if w.separate() && w.port(4) == w.port(6) {
		return model.Errorf(model.CodeInvalidConf, "give the two devices different ports, or set Mode to auto",
			"wireguard: ListenPort and ListenPortV6 are both %d", w.port(4))
	}
	return nil
}

func (w WireGuard) separate() bool { return w.Mode == "" || w.Mode == ModeSeparate }

// port returns the UDP port of the device of a family.
func (w WireGuard) port(family int) uint16 {
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

func (w WireGuard) keyFile() string {
	if w.KeyFile == "" {
		return DefaultKeyFile
	}
	return w.KeyFile
}

// link returns the device of a family.
func (w WireGuard) link(family int) string {
	if family == 6 && w.separate() {
		return wireguardLinkV6
	}
	return wireguardLink
}

func (p *Planner) wireguardLearned() WireGuardLearned {
	var l WireGuardLearned
	_ = json.Unmarshal([]byte(p.Learned("wireguard")), &l) // no data yet: the kernel's device, and no key to publish
	return l
}

func wireguardPublish(p *Planner, family int) string {
	l := p.wireguardLearned()
	if l.PublicKey == "" {
		return ""
	}
	b, err := json.Marshal(wireguardData{l.PublicKey, p.cfg.WireGuard.port(family)})
	if err != nil {
		return ""
	}
	return string(b)
}

// wireguardNode plans the devices and tunnels.
func wireguardNode(p *Planner) BackendState {
	part, w := enableForwarding(p), p.cfg.WireGuard
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
		p.assignAddr(name, family, &part)
	}
	return part
}

// OptionUserSpace is in the options of a tunnel without kernel support.
const OptionUserSpace = "userSpace"

// OptionKeepalive is the keepalive interval, in seconds.
const OptionKeepalive = "keepalive"

func (w WireGuard) tunnel(l state.Link, family int) Tunnel {
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

// wireguardPeer routes a peer's prefix through the device, and adds the peer's key and endpoint to the tunnel.
func wireguardPeer(p *Planner, peer model.Node, cidr netip.Prefix) (BackendState, *Problem) {
	family := familyOf(cidr.Addr())
	if p.cfg.Backend != "wireguard" {
		return BackendState{}, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s uses wireguard, which this node does not use: that node would not accept its packets",
				peer.Name),
			"configure backend wireguard on both, or another one on that node",
		}
	}
	data, problem := p.wireguardKey(peer, family)
	if problem != nil {
		return BackendState{}, problem
	}
	outer := p.wireguardFamily(peer, family)
	far, ok := addrOf(peer, outer)
	if !ok || !p.hasUnderlay(outer) {
		return BackendState{}, &Problem{
			[]string{p.self.Name, peer.Name},
			fmt.Sprintf("nodes %s and %s do not both have an IPv%d address, over which wireguard is to reach %s", p.self.Name,
				peer.Name, outer, cidr),
			"give both an InternalIP of that family, or set Mode to the other one",
		}
	}
	r := p.Route(cidr)
	r.Link = p.cfg.WireGuard.link(family)
	return BackendState{
		Host: state.Space{Routes: []state.Route{r}},
		Tunnels: []Tunnel{{Backend: "wireguard", Link: r.Link, Peers: []TunnelPeer{{
			Node: peer.Name, CIDR: cidr, Endpoint: netip.AddrPortFrom(far, data.Port), Further: otherAddrs(peer, far, family),
			PublicKey: data.PublicKey,
		}}}},
	}, nil
}

// otherAddrs returns a node's addresses of a family, except the tunnel's.
func otherAddrs(n model.Node, end netip.Addr, family int) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrsOf(n) {
		if a != end && familyOf(a) == family {
			out = append(out, a)
		}
	}
	return out
}

// wireguardFamily returns the family of the outer packets to a peer.
func (p *Planner) wireguardFamily(peer model.Node, family int) int {
	switch w := p.cfg.WireGuard; {
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
	case !has6 || !p.hasUnderlay(6):
		return 4
	case !has4 || !p.hasUnderlay(4):
		return 6
	case far4.IsPrivate() && !far6.IsPrivate() && !p.underlay[6].Address.IsPrivate(): // what flannel chooses
		return 6
	}
	return 4
}

// wireguardKey returns a peer's published key and port. With one device for both families the port is that of IPv4:
// flannel then publishes an unused port for IPv6.
func (p *Planner) wireguardKey(peer model.Node, family int) (wireguardData, *Problem) {
	own := p.cfg.WireGuard.port(family)
	text := Data(peer, "wireguard", family)
	if other := Data(peer, "wireguard", 4); !p.cfg.WireGuard.separate() && other != "" && other != "null" {
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
			"have that node publish it again: {\"PublicKey\":\"…\",\"Port\":51820}",
		}
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return wrong("not such an object")
	}
	if key, err := base64.StdEncoding.DecodeString(d.PublicKey); err != nil || len(key) != 32 {
		return wrong("PublicKey is not 32 bytes in base64")
	}
	if d.PublicKey == p.wireguardLearned().PublicKey {
		return d, &Problem{
			[]string{p.self.Name, peer.Name},
			fmt.Sprintf("nodes %s and %s have the same WireGuard key", p.self.Name, peer.Name),
			fmt.Sprintf("delete the file %s of one of them, and restart it", p.cfg.WireGuard.keyFile()),
		}
	}
	if d.Port == 0 { // an older flannel
		d.Port = own
	}
	return d, nil
}
