// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flannel"
)

// The first and the longest delay before a broken watch is restarted.
const watchFirst, watchLongest = 100 * time.Millisecond, 5 * time.Second

// errConfigLost: the configuration is missing although there were leases.
var errConfigLost = errors.New("it has lost the network configuration and is not trusted; write the configuration again")

// Watch sends the leases as nodes, then Synced once, then every change until ctx ends, when it closes the channel.
func (r *Registry) Watch(ctx context.Context) (<-chan store.Event, error) {
	f := &leaseWatch{r: r, out: make(chan store.Event), known: map[string]store.Object{}}
	go func() {
		defer close(f.out)
		f.run(ctx)
	}()
	return f.out, nil
}

type leaseWatch struct {
	r      *Registry
	out    chan store.Event
	known  map[string]store.Object // by the key's last part
	synced bool
}

func (f *leaseWatch) run(ctx context.Context) {
	wait, said := watchFirst, ""
	for {
		revision, err := f.list(ctx)
		if err == nil {
			if said != "" {
				f.r.log.Info("leases are watched again")
			}
			wait, said = watchFirst, ""
			err = f.follow(ctx, revision+1)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			f.r.log.Warn("etcd cannot be watched; the known leases stay in force", "err", err)
		}
		select {
		case <-f.r.cfg.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, watchLongest)
	}
}

// list sends the changes since the last list.
func (f *leaseWatch) list(ctx context.Context) (int64, error) {
	p, err := f.r.read(ctx)
	if err != nil {
		return 0, err
	}
	if p.config == nil && len(f.known) > 0 {
		return 0, errConfigLost
	}
	there := map[string]bool{}
	for _, e := range p.entries {
		there[e.key] = true
		f.put(ctx, e)
	}
	for key := range f.known {
		if !there[key] {
			f.drop(ctx, key)
		}
	}
	if !f.synced {
		f.synced = true
		f.send(ctx, store.Event{Type: store.Synced})
	}
	return p.revision, nil
}

// follow sends changes until the watch breaks.
func (f *leaseWatch) follow(ctx context.Context, from int64) error {
	return f.r.stream(ctx, f.r.subnetsKey(), from, func(e change) { f.take(ctx, e) })
}

// take handles one change.
func (f *leaseWatch) take(ctx context.Context, e change) {
	key := strings.TrimPrefix(e.key, f.r.subnetsKey())
	if e.gone {
		f.drop(ctx, key)
		return
	}
	entry, err := f.r.parseEntry(e.keyValue)
	if err != nil {
		f.r.log.Warn("lease is invalid; its last valid version is used, if any", "err", err)
		return
	}
	f.put(ctx, entry)
}

func (f *leaseWatch) put(ctx context.Context, e entry) {
	o, err := NodeObject(nodeName(e.Lease), e.Lease, e.Published.Addrs)
	if err != nil {
		f.r.log.Warn("lease is invalid; its last valid version is used, if any", "key", e.key, "err", err)
		return
	}
	have, known := f.known[e.key]
	if known && have.Version == o.Version {
		return
	}
	f.known[e.key] = o
	kind := store.Added
	if known {
		kind = store.Modified
	}
	f.send(ctx, store.Event{Type: kind, Object: o})
}

func (f *leaseWatch) drop(ctx context.Context, key string) {
	if o, ok := f.known[key]; ok {
		delete(f.known, key)
		f.send(ctx, store.Event{Type: store.Deleted, Object: o})
	}
}

func (f *leaseWatch) send(ctx context.Context, e store.Event) {
	select {
	case f.out <- e:
	case <-ctx.Done():
	}
}

// nodeName returns the name of a lease's node: its IPv4 subnet, else its IPv6 one, in characters that a name may have.
func nodeName(l flannel.Lease) string {
	p := l.Subnet
	if !p.IsValid() {
		p = l.IPv6Subnet
	}
	return strings.NewReplacer(":", "-").Replace(fmt.Sprintf("%s-%d", p.Addr().StringExpanded(), p.Bits()))
}

// NodeObject returns a lease as a Node with these addresses.
func NodeObject(name string, l flannel.Lease, addrs []netip.Addr) (store.Object, error) {
	type address struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	}
	var cidrs []string
	for _, p := range l.Subnets() {
		cidrs = append(cidrs, p.String())
	}
	var all []address
	for _, a := range addrs {
		all = append(all, address{"InternalIP", a.String()})
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": name, "annotations": flannel.DefaultKeys().Write(l.Published, nil)},
		"spec":     map[string]any{"podCIDRs": cidrs},
		"status":   map[string]any{"addresses": all},
	})
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(raw)
}
