// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/genetlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/weft-net/weft/internal/netns"
)

// family is WireGuard's name in generic netlink.
const family = "wireguard"

// Supported reports whether the kernel has WireGuard. The query loads the module if there is one.
func Supported(ns *netns.NS) (bool, error) {
	var c *genetlink.Conn
	err := ns.Do(func() (err error) {
		c, err = genetlink.Dial(nil)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("generic netlink: %w", err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.GetFamily(family)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("generic netlink: family %s: %w", family, err)
	}
	return true, nil
}

// Set configures a device as wanted, and writes only differences. A peer's endpoint that differs because it roamed (it
// sent from another address) is kept, unless moved reports that the peer has a new endpoint.
func Set(ns *netns.NS, link string, want Config, moved func(PublicKey) bool) (written bool, err error) {
	c, err := dial(ns)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	have, err := c.Device(link)
	if err != nil {
		return false, fmt.Errorf("wireguard %s: %w", link, err)
	}
	change, differs := diff(want, have, moved)
	if !differs {
		return false, nil
	}
	if err := c.ConfigureDevice(link, change); err != nil {
		return false, fmt.Errorf("wireguard %s: %w", link, err)
	}
	return true, nil
}

func dial(ns *netns.NS) (c *wgctrl.Client, err error) {
	err = ns.Do(func() (err error) {
		c, err = wgctrl.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wireguard: %w", err)
	}
	return c, nil
}

// Traffic is how much a device has exchanged with a peer since the peer was added, in bytes.
type Traffic struct{ Received, Sent int64 }

// Counted returns the traffic that a device counts for each peer.
func Counted(ns *netns.NS, link string) (map[PublicKey]Traffic, error) {
	c, err := dial(ns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	have, err := c.Device(link)
	if err != nil {
		return nil, fmt.Errorf("wireguard %s: %w", link, err)
	}
	out := make(map[PublicKey]Traffic, len(have.Peers))
	for _, p := range have.Peers {
		out[PublicKey(p.PublicKey)] = Traffic{p.ReceiveBytes, p.TransmitBytes}
	}
	return out, nil
}

// diff returns what must be written.
func diff(want Config, have *wgtypes.Device, moved func(PublicKey) bool) (c wgtypes.Config, differs bool) {
	if wgtypes.Key(want.Private) != have.PrivateKey {
		c.PrivateKey, differs = (*wgtypes.Key)(&want.Private), true
	}
	if port := int(want.Port); port != have.ListenPort {
		c.ListenPort, differs = &port, true
	}
	known := make(map[wgtypes.Key]*wgtypes.Peer, len(have.Peers))
	for i := range have.Peers {
		known[have.Peers[i].PublicKey] = &have.Peers[i]
	}
	var changed []wgtypes.PeerConfig
	for _, p := range want.Peers {
		old := known[wgtypes.Key(p.Key)]
		delete(known, wgtypes.Key(p.Key))
		if pc, differs := peer(want, p, old, moved); differs {
			changed = append(changed, pc)
		}
	}
	// Removed peers come first: their prefixes may belong to others now.
	for _, p := range have.Peers {
		if _, gone := known[p.PublicKey]; gone {
			c.Peers = append(c.Peers, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true})
		}
	}
	c.Peers = append(c.Peers, changed...)
	return c, differs || len(c.Peers) > 0
}

// peer returns what must be written of one peer; old is nil when it is new.
func peer(want Config, p Peer, old *wgtypes.Peer, moved func(PublicKey) bool) (c wgtypes.PeerConfig, differs bool) {
	c = wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), UpdateOnly: old != nil}
	if old == nil {
		old, differs = &wgtypes.Peer{}, true
	}
	if wgtypes.Key(want.Shared) != old.PresharedKey {
		c.PresharedKey, differs = (*wgtypes.Key)(&want.Shared), true
	}
	if keepalive := time.Duration(want.Keepalive) * time.Second; keepalive != old.PersistentKeepaliveInterval {
		c.PersistentKeepaliveInterval, differs = &keepalive, true
	}
	if found := addrPort(old.Endpoint); found != p.Endpoint && (!found.IsValid() || moved(p.Key)) {
		c.Endpoint, differs = net.UDPAddrFromAddrPort(p.Endpoint), true
	}
	if allowed := prefixes(old.AllowedIPs); !sameSet(p.Allowed, allowed) {
		c.ReplaceAllowedIPs, differs = true, true
		for _, a := range p.Allowed {
			c.AllowedIPs = append(c.AllowedIPs, net.IPNet{
				IP: a.Masked().Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen()),
			})
		}
	}
	return c, differs
}

func addrPort(a *net.UDPAddr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

func prefixes(nets []net.IPNet) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(nets))
	for _, n := range nets {
		if a, ok := netip.AddrFromSlice(n.IP); ok {
			bits, _ := n.Mask.Size()
			out = append(out, netip.PrefixFrom(a.Unmap(), bits))
		}
	}
	return out
}

// sameSet compares without order.
func sameSet(a, b []netip.Prefix) bool {
	if len(a) != len(b) {
		return false
	}
	for _, p := range a {
		if !slices.Contains(b, p.Masked()) {
			return false
		}
	}
	return true
}
