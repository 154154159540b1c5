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

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/store"
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := f.r.dial(ctx)
	if err != nil {
		return err
	}
	answers := c.Watch(clientv3.WithRequireLeader(ctx), f.r.subnetsKey(), clientv3.WithPrefix(), clientv3.WithRev(from))
	for {
		select {
		case answer, ok := <-answers:
			if !ok {
				return errors.New("the watch has ended")
			}
			if err := answer.Err(); err != nil {
				return err
			}
			for _, e := range answer.Events {
				f.take(ctx, e)
			}
			from = max(from, answer.Header.Revision+1)
		case <-f.r.cfg.After(f.r.cfg.Probe):
			if err := f.probe(ctx, from-1); err != nil {
				return err
			}
		}
	}
}

// probe finds out whether etcd still counts on from where the watch is. One that was made anew counts from one, and the
// watch would wait for a number that does not come for years. While it is away nothing is known of it.
func (f *follower) probe(ctx context.Context, seen int64) error {
	var revision int64
	err := f.r.ask(ctx, "key "+f.r.configKey(), func(ctx context.Context, c *clientv3.Client) error {
		answer, err := c.Get(ctx, f.r.configKey(), clientv3.WithCountOnly())
		if err == nil {
			revision = answer.Header.Revision
		}
		return err
	})
	if err == nil && revision < seen {
		return fmt.Errorf("it was at revision %d and is at %d", seen, revision)
	}
	return nil
}

// take takes one change.
func (f *follower) take(ctx context.Context, e *clientv3.Event) {
	key := strings.TrimPrefix(string(e.Kv.Key), f.r.subnetsKey())
	if e.Type == mvccpb.Event_DELETE {
		f.drop(ctx, key)
		return
	}
	entry, err := f.r.understand(e.Kv)
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
