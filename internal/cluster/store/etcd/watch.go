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

// How long a watch that broke waits, from the first time to the longest.
const watchFirst, watchLongest = 100 * time.Millisecond, 5 * time.Second

// errForgetful: the configuration is missing where leases were known.
var errForgetful = errors.New("it has lost the configuration and is not believed; write it anew")

// Watch tells of the leases as nodes, then Synced once, then every change until ctx ends, when it closes the channel.
func (r *Registry) Watch(ctx context.Context) (<-chan store.Event, error) {
	f := &follower{r: r, out: make(chan store.Event), known: map[string]store.Object{}}
	go func() {
		defer close(f.out)
		f.run(ctx)
	}()
	return f.out, nil
}

type follower struct {
	r      *Registry
	out    chan store.Event
	known  map[string]store.Object // by the key's last part
	synced bool
}

func (f *follower) run(ctx context.Context) {
	wait, said := watchFirst, ""
	for {
		revision, err := f.list(ctx)
		if err == nil {
			if said != "" {
				f.r.log.Info("followed again")
			}
			wait, said = watchFirst, ""
			err = f.follow(ctx, revision+1)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			f.r.log.Warn("etcd cannot be followed; what is known stays in force", "err", err)
		}
		select {
		case <-f.r.cfg.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, watchLongest)
	}
}

// list tells what has changed since the last look.
func (f *follower) list(ctx context.Context) (int64, error) {
	p, err := f.r.look(ctx)
	if err != nil {
		return 0, err
	}
	if p.config == nil && len(f.known) > 0 {
		return 0, errForgetful
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

// follow tells changes until the watch breaks.
func (f *follower) follow(ctx context.Context, from int64) error {
	return f.r.stream(ctx, f.r.subnetsKey(), from, func(e change) { f.take(ctx, e) })
}

// take takes one change.
func (f *follower) take(ctx context.Context, e change) {
	key := strings.TrimPrefix(e.key, f.r.subnetsKey())
	if e.gone {
		f.drop(ctx, key)
		return
	}
	entry, err := f.r.understand(e.keyValue)
	if err != nil {
		f.r.log.Warn("left out, or kept as it was before", "err", err)
		return
	}
	f.put(ctx, entry)
}

func (f *follower) put(ctx context.Context, e entry) {
	o, err := NodeObject(nodeName(e.Lease), e.Lease, e.Published.Addrs)
	if err != nil {
		f.r.log.Warn("left out, or kept as it was before", "key", e.key, "err", err)
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

func (f *follower) drop(ctx context.Context, key string) {
	if o, ok := f.known[key]; ok {
		delete(f.known, key)
		f.send(ctx, store.Event{Type: store.Deleted, Object: o})
	}
}

func (f *follower) send(ctx context.Context, e store.Event) {
	select {
	case f.out <- e:
	case <-ctx.Done():
	}
}

// nodeName is the name of the node with a lease: its IPv4 subnet, else its IPv6 one, in letters that a name may have.
func nodeName(l flannel.Lease) string {
	p := l.Subnet
	if !p.IsValid() {
		p = l.IPv6Subnet
	}
	return strings.NewReplacer(":", "-").Replace(fmt.Sprintf("%s-%d", p.Addr().StringExpanded(), p.Bits()))
}

// NodeObject is a lease as the Node that it stands for, with addresses of its own.
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
