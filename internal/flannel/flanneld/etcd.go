// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
	"github.com/weft-net/weft/internal/model"
)

// leases is the manager of nodes that lease their subnets in etcd.
type leases struct {
	d        *daemon
	registry *etcd.Registry

	mu          sync.Mutex
	name        string
	renewer     *etcd.LeaseRenewer
	said        model.Published // what the node publishes
	conflicting model.Published // what another node has written into its lease
}

func (d *daemon) newLeases() (*leases, error) {
	o := d.cfg.Options
	r, err := etcd.Open(etcd.Config{
		Access: etcd.Access{
			Endpoints: strings.FieldsFunc(o.EtcdEndpoints, func(r rune) bool { return r == ',' || r == ' ' }),
			Prefix:    o.EtcdPrefix,
			KeyFile:   o.EtcdKeyFile, CertFile: o.EtcdCertFile, CAFile: o.EtcdCAFile, Username: o.EtcdUsername,
			Password: o.EtcdPassword,
		},
		Log: d.cfg.Log, Now: d.cfg.Now, After: d.cfg.After, Random: d.cfg.Random,
	})
	return &leases{d: d, registry: r}, err
}

func (l *leases) netConf(ctx context.Context) ([]byte, error) { return l.registry.NetConf(ctx) }

func (l *leases) external(context.Context) ([]netip.Addr, error) { return nil, nil }

func (l *leases) acquire(ctx context.Context, ask request) (grant, error) {
	h, err := l.registry.Acquire(ctx, etcd.Request{
		Conf: ask.conf, Addrs: ask.underlay.external(), Previous: ask.previous,
		Publish: func(name string, subnets []netip.Prefix, had *model.Published) (model.Published, error) {
			return ask.published(ctx, name, subnets, had)
		},
	})
	if err != nil {
		return grant{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name, l.renewer = h.Name(), l.registry.Renewer(h, time.Duration(l.d.cfg.RenewMargin)*time.Minute)
	return grant{name: h.Name(), subnets: h.Subnets()}, nil
}

// Watch sends the leases as nodes, and wakes the renewer when the node's own is gone.
func (l *leases) Watch(ctx context.Context) (<-chan store.Event, error) {
	events, err := l.registry.Watch(ctx)
	if err != nil {
		return nil, err
	}
	out := make(chan store.Event)
	go func() {
		defer close(out)
		for e := range events {
			if e.Object.Key.Name == l.name {
				l.handleOwnLease(e)
			}
			select {
			case out <- e:
			case <-ctx.Done():
			}
		}
	}()
	return out, nil
}

// handleOwnLease handles an event of the node's own lease.
func (l *leases) handleOwnLease(e store.Event) {
	if e.Type == store.Deleted {
		l.renewer.KeyGone()
		return
	}
	n, err := e.Object.Node()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || n.Published == nil || l.said.Backend == "" || n.Published.Equal(&l.said) ||
		n.Published.Equal(&l.conflicting) {
		return
	}
	l.conflicting = *n.Published
	l.d.log.Error(
		"another node writes into this node's lease: it has the same public address, and so the same subnet",
		"lease", l.name, "addresses", n.Published.Addrs, "data", n.Published.Data, "dataV6", n.Published.DataV6, "hint",
		"configure a different address on each node: --iface, --public-ip")
}

func (l *leases) publish(p model.Published) {
	l.mu.Lock()
	l.said = p
	l.mu.Unlock()
	l.renewer.Publish(p)
}

// renumbered opens a new connection to etcd: one from an address that the node has lost would wait for its deadline.
func (l *leases) renumbered() { l.registry.Reconnect() }

func (l *leases) keep(ctx context.Context) error { return l.renewer.Run(ctx) }

// external returns the addresses that the node publishes.
func (u Underlay) external() []netip.Addr {
	var out []netip.Addr
	for _, a := range u.Addrs {
		if i := slices.IndexFunc(u.Public, func(p netip.Addr) bool { return p.Is4() == a.Is4() }); i >= 0 {
			a = u.Public[i]
		}
		out = append(out, a)
	}
	return out
}
