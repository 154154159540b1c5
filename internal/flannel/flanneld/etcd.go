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

	mu      sync.Mutex
	name    string
	keeper  *etcd.Keeper
	said    model.Published // what the node publishes
	strange model.Published // what another node has written into its lease
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
	l.name, l.keeper = h.Name(), l.registry.Keep(h, time.Duration(l.d.cfg.RenewMargin)*time.Minute)
	return grant{name: h.Name(), subnets: h.Subnets()}, nil
}

// Watch tells of the leases as nodes, and the keeper when the node's own is gone.
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
				l.own(e)
			}
			select {
			case out <- e:
			case <-ctx.Done():
			}
		}
	}()
	return out, nil
}

// own looks at what happens to the node's own lease.
func (l *leases) own(e store.Event) {
	if e.Type == store.Deleted {
		l.keeper.Gone()
		return
	}
	n, err := e.Object.Node()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || n.Published == nil || l.said.Backend == "" || n.Published.Equal(&l.said) ||
		n.Published.Equal(&l.strange) {
		return
	}
	l.strange = *n.Published
	l.d.log.Error(
		"somebody else writes into this node's lease: another node has the same public address, and so the same subnet",
		"lease", l.name, "addrs", n.Published.Addrs, "data", n.Published.Data, "dataV6", n.Published.DataV6, "hint",
		"give each node an address of its own: --iface, --public-ip")
}

func (l *leases) publish(p model.Published) {
	l.mu.Lock()
	l.said = p
	l.mu.Unlock()
	l.keeper.Publish(p)
}

// renumbered has etcd asked over a new connection: one from an address that the node has lost waits for its deadline.
func (l *leases) renumbered() { l.registry.Reconnect() }

func (l *leases) keep(ctx context.Context) error { return l.keeper.Run(ctx) }

// external are the addresses that other nodes are told.
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
