// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Watch tells what is there, then Synced once, then every change until ctx ends, when it closes the channel. Without
// kinds it tells of all.
func (s shelf) Watch(ctx context.Context, kinds ...store.Kind) (<-chan store.Event, error) {
	w := &shelfWatch{
		shelf: s, kinds: kinds, out: make(chan store.Event), known: map[string]store.Object{}, faulty: map[string]string{},
	}
	go func() {
		defer close(w.out)
		w.run(ctx)
	}()
	return w.out, nil
}

type shelfWatch struct {
	shelf
	kinds  []store.Kind
	out    chan store.Event
	known  map[string]store.Object // by their keys in etcd
	faulty map[string]string       // what is wrong with others
	synced bool
}

func (w *shelfWatch) run(ctx context.Context) {
	wait, said := watchFirst, ""
	for {
		revision, err := w.list(ctx)
		if err == nil {
			if said != "" {
				w.r.log.Info("objects are followed again")
			}
			wait, said = watchFirst, ""
			err = w.r.stream(ctx, w.r.cfg.Prefix+"/", revision+1, func(e change) { w.take(ctx, e) })
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			w.r.log.Warn("etcd cannot be followed; what is known stays in force", "err", err)
		}
		select {
		case <-w.r.cfg.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, watchLongest)
	}
}

// list tells what has changed since the last look.
func (w *shelfWatch) list(ctx context.Context) (int64, error) {
	var found result
	err := w.r.ask(ctx, "objects", func(ctx context.Context, c *connection) error {
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

// take takes one change.
func (w *shelfWatch) take(ctx context.Context, e change) {
	if !w.wanted(e.key, w.kinds) {
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
	if err != nil { // it stays what it was
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

func (w *shelfWatch) send(ctx context.Context, e store.Event) {
	select {
	case w.out <- e:
	case <-ctx.Done():
	}
}

// stream tells the changes of all keys that begin so, until the watch breaks. One that breaks is not taken up where it
// was: an etcd that was made anew counts from one, and would say nothing for years.
func (r *Registry) stream(ctx context.Context, prefix string, from int64, take func(change)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The registry is locked while a connection is made: others would wait with it for a server that says nothing.
	dialing, done := context.WithTimeout(ctx, patience)
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
		var n notice
		if err = n.read(answer); err == nil && n.canceled {
			err = fmt.Errorf("the watch has ended: %s", n.reason)
		}
		for _, e := range n.changes {
			take(e)
		}
	}
	if passing(err) {
		r.drop(c)
	}
	return err
}
