// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/wireguard"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// learnWireguard finds out the public key and who carries the packets, once.
func (r *Runner) learnWireguard(w mesh.Wireguard) (mesh.WireguardLearned, error) {
	file := w.KeyFile
	if file == "" {
		file = mesh.DefaultKeyFile
	}
	if r.learned.wireguard != nil && r.learned.keyFile == file {
		return *r.learned.wireguard, nil
	}
	private, err := makeKey(file, r.cfg.Random)
	if err != nil {
		return mesh.WireguardLearned{}, err
	}
	public, err := publicKey(private)
	if err != nil {
		return mesh.WireguardLearned{}, fmt.Errorf("key file %s: %w", file, err)
	}
	kernel, err := wireguard.Supported(r.cfg.NS)
	if err != nil {
		return mesh.WireguardLearned{}, err
	}
	if !kernel {
		r.cfg.Log.Info("this kernel has no WireGuard: a program carries the packets, which costs more")
	}
	l := mesh.WireguardLearned{PublicKey: public.String(), UserSpace: !kernel}
	r.learned.wireguard, r.learned.keyFile = &l, file
	return l, nil
}

func (r *Runner) startWireguard(w mesh.Tunnel, dead *atomic.Bool) (keeper, error) {
	if w.Options[mesh.OptionUserSpace] != "" {
		return r.startUserspace(w, dead)
	}
	return &kernelWireguard{ns: r.cfg.NS}, nil
}

// wireguardConfig makes a device's configuration, the keys read from their files.
func wireguardConfig(w mesh.Tunnel) (c wireguard.Config, err error) {
	if c.Private, err = readKey(w.KeyFile, hintPrivate); err != nil {
		return c, err
	}
	if w.PSKFile != "" {
		if c.Shared, err = readKey(w.PSKFile, hintShared); err != nil {
			return c, err
		}
	}
	c.Port = w.Local.Port()
	if text := w.Options[mesh.OptionKeepalive]; text != "" {
		if c.Keepalive, err = strconv.Atoi(text); err != nil {
			return c, fmt.Errorf("keepalive: %w", err)
		}
	}
	index := make(map[wireguard.PublicKey]int, len(w.Peers))
	for _, p := range w.Peers {
		key, err := wireguard.ParseKey(p.PublicKey)
		if err != nil {
			return c, fmt.Errorf("node %s: %w", p.Node, err)
		}
		i, known := index[key]
		if !known {
			i = len(c.Peers)
			index[key] = i
			// What the node itself answers to a pod comes from its own address, or another of its addresses.
			own := p.Endpoint.Addr()
			c.Peers = append(c.Peers, wireguard.Peer{
				Key: key, Endpoint: p.Endpoint, Allowed: []netip.Prefix{netip.PrefixFrom(own, own.BitLen())},
			})
		}
		c.Peers[i].Allowed = append(c.Peers[i].Allowed, p.CIDR)
		for _, a := range p.Further {
			if host := netip.PrefixFrom(a, a.BitLen()); !slices.Contains(c.Peers[i].Allowed, host) {
				c.Peers[i].Allowed = append(c.Peers[i].Allowed, host)
			}
		}
	}
	return c, nil
}

// kernelWireguard is a device of the kernel's: there is nothing to run, only to say.
type kernelWireguard struct {
	ns    *netns.NS
	index int
	ends  map[wireguard.PublicKey]netip.AddrPort // where peers were said to be the last time
}

// set says it where something is wanted otherwise or the device is another one; somebody's meddling with keys or peers
// is seen when either happens.
func (k *kernelWireguard) set(_ context.Context, w mesh.Tunnel, changed bool) error {
	index, err := linkIndex(k.ns, w.Link)
	if err != nil {
		return err
	}
	if w.Options[mesh.OptionUserSpace] != "" {
		return errAnew
	}
	if index == k.index && !changed {
		return nil
	}
	c, err := wireguardConfig(w)
	if err != nil {
		return err
	}
	ends := make(map[wireguard.PublicKey]netip.AddrPort, len(c.Peers))
	for _, p := range c.Peers {
		ends[p.Key] = p.Endpoint
	}
	moved := func(key wireguard.PublicKey) bool { return index != k.index || k.ends[key] != ends[key] }
	if _, err := wireguard.Set(k.ns, w.Link, c, moved); err != nil {
		return err
	}
	k.index, k.ends = index, ends
	return nil
}

// close leaves the device to the reconciler.
func (k *kernelWireguard) close() {}

// linkIndex is the index of a link.
func linkIndex(ns *netns.NS, link string) (index int, err error) {
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		ifr, err := unix.NewIfreq(link)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr); err != nil {
			return err
		}
		index = int(ifr.Uint32())
		return nil
	})
	if err != nil {
		err = fmt.Errorf("link %s: %w", link, os.NewSyscallError("index", err))
	}
	return index, err
}

// changedPeers are those of want that differ from have, and the keys that are gone.
func changedPeers(want, have []wireguard.Peer) (changed []wireguard.Peer, gone []wireguard.PublicKey) {
	old := make(map[wireguard.PublicKey]wireguard.Peer, len(have))
	for _, p := range have {
		old[p.Key] = p
	}
	for _, p := range want {
		o, known := old[p.Key]
		delete(old, p.Key)
		if !known || o.Endpoint != p.Endpoint || !slices.Equal(o.Allowed, p.Allowed) {
			changed = append(changed, p)
		}
	}
	for _, p := range have {
		if _, left := old[p.Key]; left {
			gone = append(gone, p.Key)
		}
	}
	return changed, gone
}
