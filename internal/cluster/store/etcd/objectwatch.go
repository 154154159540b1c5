// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Watch sends all objects, then Synced once, then every change until ctx ends, when it closes the channel. Without
// kinds it watches all.
func (s objects) Watch(ctx context.Context, kinds ...store.Kind) (<-chan store.Event, error) {
	w := &objectWatch{
		objects: s, kinds: kinds, out: make(chan store.Event), known: map[string]store.Object{}, faulty: map[string]string{},
	}
	go func() {
		defer close(w.out)
		w.run(ctx)
	}()
	return w.out, nil
}

type objectWatch struct {
	objects
	kinds  []store.Kind
	out    chan store.Event
	known  map[string]store.Object // by key in etcd
	faulty map[string]string       // errors of invalid ones
	synced bool
}

func (w *objectWatch) run(ctx context.Context) {
	wait, said := watchFirst, ""
	for {
		revision, err := w.list(ctx)
		if err == nil {
			if said != "" {
				w.r.log.Info("objects are watched again")
			}
			wait, said = watchFirst, ""
			err = w.r.stream(ctx, w.r.cfg.Prefix+"/", revision+1, func(e change) { w.take(ctx, e) })
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			w.r.log.Warn("etcd cannot be watched; the known state stays in force", "err", err)
		}
		select {
		case <-w.r.cfg.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, watchLongest)
	}
}

// list sends the changes since the last list.
func (w *objectWatch) list(ctx context.Context) (int64, error) {
	var found result
	err := w.r.request(ctx, "objects", func(ctx context.Context, c *connection) error {
		reply, err := c.call(ctx, "KV/Range", get(w.r.cfg.Prefix+"/", true))
		if err != nil {
			return err
		}
		found = result{}
		return found.readRange(reply)
	})
	if err != nil {
		return 0, err
	}
	there := map[string]bool{}
	for _, kvs := range found.ranges {
		for _, kv := range kvs {
			there[kv.key] = true
			w.take(ctx, change{keyValue: kv})
		}
	}
	for key := range w.known {
		if !there[key] {
			w.take(ctx, change{keyValue: keyValue{key: key}, gone: true})
		}
	}
	if !w.synced {
		w.synced = true
		w.send(ctx, store.Event{Type: store.Synced})
	}
	return found.revision, nil
}

// take handles one change.
func (w *objectWatch) take(ctx context.Context, e change) {
	if !w.matches(e.key, w.kinds) {
		return
	}
	have, known := w.known[e.key]
	if e.gone {
		delete(w.faulty, e.key)
		if known {
			delete(w.known, e.key)
			w.send(ctx, store.Event{Type: store.Deleted, Object: have})
		}
		return
	}
	o, err := object(e.keyValue)
	if err != nil { // the last valid version is kept
		if w.faulty[e.key] != err.Error() {
			w.faulty[e.key] = err.Error()
			w.send(ctx, store.Event{Type: store.Faulty, Err: err})
		}
		return
	}
	delete(w.faulty, e.key)
	if known && have.Version == o.Version {
		return
	}
	w.known[e.key] = o
	kind := store.Added
	if known {
		kind = store.Modified
	}
	w.send(ctx, store.Event{Type: kind, Object: o})
}

func (w *objectWatch) send(ctx context.Context, e store.Event) {
	select {
	case w.out <- e:
	case <-ctx.Done():
	}
}

// stream sends the changes of all keys with the prefix, until the watch breaks. A broken watch is not resumed at its
// revision: a re-created etcd starts at revision 1, and would send nothing for years.
func (r *Registry) stream(ctx context.Context, prefix string, from int64, take func(change)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The registry is locked while it connects, so connecting has a timeout: other requests wait for it.
	dialing, done := context.WithTimeout(ctx, requestTimeout)
	c, err := r.dial(dialing)
	done()
	if err != nil {
		return err
	}
	s, err := c.stream(ctx, "Watch/Watch", message{}.sub(1, get(prefix, true).number(3, from)))
	for err == nil {
		var answer []byte
		if err = s.RecvMsg(&answer); err != nil {
			break
		}
		var n watchResponse
		if err = n.read(answer); err == nil && n.canceled {
			err = fmt.Errorf("the watch has ended: %s", n.reason)
		}
		for _, e := range n.changes {
			take(e)
		}
	}
	if isTransient(err) {
		r.drop(c)
	}
	return err
}
