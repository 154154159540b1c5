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

// learnWireguard returns the public key and where WireGuard runs, and caches both.
func (r *Runner) learnWireguard(w mesh.WireGuard) (mesh.WireGuardLearned, error) {
	file := w.KeyFile
	if file == "" {
		file = mesh.DefaultKeyFile
	}
	if r.learned.wireguard != nil && r.learned.keyFile == file {
		return *r.learned.wireguard, nil
	}
	private, err := readOrGeneratePrivateKey(file, r.cfg.Random)
	if err != nil {
		return mesh.WireGuardLearned{}, err
	}
	public, err := publicKey(private)
	if err != nil {
		return mesh.WireGuardLearned{}, fmt.Errorf("key file %s: %w", file, err)
	}
	kernel, err := wireguard.Supported(r.cfg.NS)
	if err != nil {
		return mesh.WireGuardLearned{}, err
	}
	if !kernel {
		r.cfg.Log.Info("kernel has no WireGuard, and the agent runs it in user space, which is slower")
	}
	l := mesh.WireGuardLearned{PublicKey: public.String(), UserSpace: !kernel}
	r.learned.wireguard, r.learned.keyFile = &l, file
	return l, nil
}

func (r *Runner) startWireguard(w mesh.Tunnel, dead *atomic.Bool) (tunnel, error) {
	if w.Options[mesh.OptionUserSpace] != "" {
		return r.startUserspace(w, dead)
	}
	return &kernelWireguard{ns: r.cfg.NS}, nil
}

// wireguardConfig returns a device's configuration, with the keys from their files.
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
			// A reply of the node itself to a pod has any of the node's addresses as its source.
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

// kernelWireguard is a device of the kernel, which only needs its configuration.
type kernelWireguard struct {
	ns        *netns.NS
	index     int
	endpoints map[wireguard.PublicKey]netip.AddrPort // the last configured endpoints of peers
}

// set configures the device if the wanted tunnel has changed or the device was re-created; external changes of keys or
// peers are overwritten then.
func (k *kernelWireguard) set(_ context.Context, w mesh.Tunnel, changed bool) error {
	index, err := linkIndex(k.ns, w.Link)
	if err != nil {
		return err
	}
	if w.Options[mesh.OptionUserSpace] != "" {
		return errRecreate
	}
	if index == k.index && !changed {
		return nil
	}
	c, err := wireguardConfig(w)
	if err != nil {
		return err
	}
	endpoints := make(map[wireguard.PublicKey]netip.AddrPort, len(c.Peers))
	for _, p := range c.Peers {
		endpoints[p.Key] = p.Endpoint
	}
	moved := func(key wireguard.PublicKey) bool { return index != k.index || k.endpoints[key] != endpoints[key] }
	if _, err := wireguard.Set(k.ns, w.Link, c, moved); err != nil {
		return err
	}
	k.index, k.endpoints = index, endpoints
	return nil
}

// close does nothing: the reconciler deletes the device.
func (k *kernelWireguard) close() {}

// linkIndex returns the index of a link.
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

// changedPeers returns those of want that differ from have, and the keys that are gone.
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
