// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Shelf is an etcd as the place of a cluster's objects, for hosts without Kubernetes: one key for each object, at which
// its JSON is. The version of an object is the revision of the key's last change.
//
//	<prefix>/addressblocks.weft.dev/lan-10-40-0-0-26
//	<prefix>/network-attachment-definitions.k8s.cni.cncf.io/default/lan
type Shelf struct{ r *Registry }

// OpenShelf makes a shelf. etcd is not asked anything yet, and need not be there.
func OpenShelf(cfg Config) (*Shelf, error) {
	r, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	return &Shelf{r}, nil
}

// Close ends the connections.
func (s *Shelf) Close() error { return s.r.Close() }

// Objects is the shelf as a place for objects of any kind.
func (s *Shelf) Objects() store.Objects { return shelf{s.r} }

// Watch tells of the objects of all kinds.
func (s *Shelf) Watch(ctx context.Context) (<-chan store.Event, error) {
	return shelf(*s).Watch(ctx)
}

type shelf struct{ r *Registry }

// place is the beginning of the keys of a kind.
func (s shelf) place(kind store.Kind) string {
	name := kind.Resource
	if kind.Group != "" {
		name += "." + kind.Group
	}
	return s.r.cfg.Prefix + "/" + name + "/"
}

func (s shelf) key(kind store.Kind, key store.Key) string {
	if key.Namespace != "" {
		return s.place(kind) + key.Namespace + "/" + key.Name
	}
	return s.place(kind) + key.Name
}

// object is what a key has.
func object(kv keyValue) (store.Object, error) {
	o, err := store.NewObject([]byte(kv.value))
	o.Version = strconv.FormatInt(kv.modified, 10)
	if err != nil {
		return o, fmt.Errorf("etcd: key %s: %w", kv.key, err)
	}
	return o, nil
}

// Get asks etcd.
func (s shelf) Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	kvs, err := s.read(ctx, get(s.key(kind, key), false))
	if err != nil {
		return store.Object{}, fmt.Errorf("%s: %w", key, err)
	}
	if len(kvs) == 0 {
		return store.Object{}, fmt.Errorf("%s: %w", key, store.ErrNotFound)
	}
	return object(kvs[0])
}

// List asks etcd. What cannot be read is told to the log and left out: one bad key, of whoever can write there, does
// not keep the others from being known.
func (s shelf) List(ctx context.Context, kind store.Kind) ([]store.Object, error) {
	kvs, err := s.read(ctx, get(s.place(kind), true))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Resource, err)
	}
	out := make([]store.Object, 0, len(kvs))
	for _, kv := range kvs {
		o, err := object(kv)
		if err != nil {
			s.r.log.Warn("an object is left out", "err", err)
			continue
		}
		out = append(out, o)
	}
	return out, nil
}

// read makes a request that may be made again.
func (s shelf) read(ctx context.Context, m message) ([]keyValue, error) {
	var found result
	err := s.r.ask(ctx, "reading", func(ctx context.Context, c *connection) error {
		answer, err := c.call(ctx, "KV/Range", m)
		if err != nil {
			return err
		}
		found = result{}
		return found.readRange(answer)
	})
	if err != nil || len(found.ranges) == 0 {
		return nil, err
	}
	return found.ranges[0], nil
}

// Create gives the object as it is kept.
func (s shelf) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	if s.r.cfg.Now != nil {
		var err error
		if o, err = o.Born(s.r.cfg.Now()); err != nil {
			return o, err
		}
	}
	key := s.key(kind, o.Key)
	done, at, _, err := s.write(ctx, key, ifCreated(key, 0), opPut(put(key, o.Raw, 0)))
	if err == nil && !done {
		err = store.ErrExists
	}
	return s.kept(o, at, err)
}

// CompareAndSwap replaces the object if it still has the version.
func (s shelf) CompareAndSwap(
	ctx context.Context, kind store.Kind, version string, next store.Object,
) (store.Object, error) {
	key := s.key(kind, next.Key)
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil || revision <= 0 { // of no object here
		return next, fmt.Errorf("%s: %w", next.Key, store.ErrConflict)
	}
	done, at, there, err := s.write(ctx, key, ifModified(key, revision), opPut(put(key, next.Raw, 0)))
	return s.kept(next, at, answer(done, there, err))
}

// CompareAndSwapStatus is CompareAndSwap: etcd keeps no status apart.
func (s shelf) CompareAndSwapStatus(
	ctx context.Context, kind store.Kind, version string, next store.Object,
) (store.Object, error) {
	return s.CompareAndSwap(ctx, kind, version, next)
}

// Delete takes the object away if it still has the version.
func (s shelf) Delete(ctx context.Context, kind store.Kind, key store.Key, version string) error {
	name := s.key(kind, key)
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil || revision <= 0 {
		return fmt.Errorf("%s: %w", key, store.ErrConflict)
	}
	done, _, there, err := s.write(ctx, name, ifModified(name, revision), opDelete(message{}.text(1, name)))
	if err := answer(done, there, err); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func answer(done, there bool, err error) error {
	switch {
	case err != nil || done:
		return err
	case there:
		return store.ErrConflict
	}
	return store.ErrNotFound
}

func (s shelf) kept(o store.Object, at int64, err error) (store.Object, error) {
	if err != nil {
		return o, fmt.Errorf("%s: %w", o.Key, err)
	}
	raw := o.Raw
	if o, err = store.NewObject(raw); err != nil {
		return o, fmt.Errorf("%s: %w", o.Key, err)
	}
	o.Version = strconv.FormatInt(at, 10)
	return o, nil
}

// errUnknown: the request may have been done.
var errUnknown = errors.New("no answer came: it may have been done, or be done yet")

// write does something if a condition holds; where it does not, it tells whether the key is there. It is asked once:
// the answer to a second try would be about the first one.
func (s shelf) write(
	ctx context.Context, key string, condition, op message,
) (done bool, at int64, there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := s.r.dial(ctx)
	if err != nil {
		return false, 0, false, fmt.Errorf("etcd: %w", err)
	}
	m := message{}.sub(1, condition).sub(2, op).sub(3, opGet(get(key, false)))
	reply, err := c.call(ctx, "KV/Txn", m)
	var out result
	if err == nil {
		err = out.readTxn(reply)
	}
	if err != nil {
		if passing(err) {
			s.r.drop(c)
		}
		return false, 0, false, fmt.Errorf("etcd: %w: %w", errUnknown, err)
	}
	return out.succeeded, out.revision, !out.succeeded && len(out.ranges) > 0 && len(out.ranges[0]) > 0, nil
}

// wanted tells whether a key is of one of some kinds; without any, all are wanted.
func (s shelf) wanted(key string, kinds []store.Kind) bool {
	for _, kind := range kinds {
		if strings.HasPrefix(key, s.place(kind)) {
			return true
		}
	}
	return len(kinds) == 0
}
