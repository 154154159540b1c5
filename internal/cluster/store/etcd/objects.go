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

// ObjectStore stores a cluster's objects in an etcd, for hosts without Kubernetes: one key with JSON for each object.
// The version of an object is the revision of the key's last change.
//
//	<prefix>/addressblocks.weft.dev/lan-10-40-0-0-26
//	<prefix>/network-attachment-definitions.k8s.cni.cncf.io/default/lan
type ObjectStore struct{ r *Registry }

// OpenObjects creates an ObjectStore. It does not connect to etcd yet.
func OpenObjects(cfg Config) (*ObjectStore, error) {
	r, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	return &ObjectStore{r}, nil
}

// Close ends the connections.
func (s *ObjectStore) Close() error { return s.r.Close() }

// Objects returns it as a store.Objects.
func (s *ObjectStore) Objects() store.Objects { return objects{s.r} }

// Watch watches the objects of all kinds.
func (s *ObjectStore) Watch(ctx context.Context) (<-chan store.Event, error) {
	return objects(*s).Watch(ctx)
}

type objects struct{ r *Registry }

// keyPrefix returns the prefix of the keys of a kind.
func (s objects) keyPrefix(kind store.Kind) string {
	name := kind.Resource
	if kind.Group != "" {
		name += "." + kind.Group
	}
	return s.r.cfg.Prefix + "/" + name + "/"
}

func (s objects) key(kind store.Kind, key store.Key) string {
	if key.Namespace != "" {
		return s.keyPrefix(kind) + key.Namespace + "/" + key.Name
	}
	return s.keyPrefix(kind) + key.Name
}

// object returns the object of a key.
func object(kv keyValue) (store.Object, error) {
	o, err := store.NewObject([]byte(kv.value))
	o.Version = strconv.FormatInt(kv.modified, 10)
	if err != nil {
		return o, fmt.Errorf("etcd: key %s: %w", kv.key, err)
	}
	return o, nil
}

// Get reads an object.
func (s objects) Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	kvs, err := s.read(ctx, get(s.key(kind, key), false))
	if err != nil {
		return store.Object{}, fmt.Errorf("%s: %w", key, err)
	}
	if len(kvs) == 0 {
		return store.Object{}, fmt.Errorf("%s: %w", key, store.ErrNotFound)
	}
	return object(kvs[0])
}

// List reads the objects of a kind. Invalid ones are logged and left out, so that one bad key does not block the
// others.
func (s objects) List(ctx context.Context, kind store.Kind) ([]store.Object, error) {
	kvs, err := s.read(ctx, get(s.keyPrefix(kind), true))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Resource, err)
	}
	out := make([]store.Object, 0, len(kvs))
	for _, kv := range kvs {
		o, err := object(kv)
		if err != nil {
			s.r.log.Warn("object is invalid; ignoring it", "err", err)
			continue
		}
		out = append(out, o)
	}
	return out, nil
}

// read makes a request that may be repeated.
func (s objects) read(ctx context.Context, m message) ([]keyValue, error) {
	var found result
	err := s.r.request(ctx, "reading", func(ctx context.Context, c *connection) error {
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

// Create creates the object and returns it as stored.
func (s objects) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	if s.r.cfg.Now != nil {
		var err error
		if o, err = o.WithCreationTime(s.r.cfg.Now()); err != nil {
			return o, err
		}
	}
	key := s.key(kind, o.Key)
	done, at, _, err := s.write(ctx, key, ifCreated(key, 0), opPut(put(key, o.Raw, 0)))
	if err == nil && !done {
		err = store.ErrExists
	}
	return s.stored(o, at, err)
}

// CompareAndSwap replaces the object if it still has the version.
func (s objects) CompareAndSwap(
	ctx context.Context, kind store.Kind, version string, next store.Object,
) (store.Object, error) {
	key := s.key(kind, next.Key)
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil || revision <= 0 { // of no object here
		return next, fmt.Errorf("%s: %w", next.Key, store.ErrConflict)
	}
	done, at, there, err := s.write(ctx, key, ifModified(key, revision), opPut(put(key, next.Raw, 0)))
	return s.stored(next, at, swapError(done, there, err))
}

// CompareAndSwapStatus is CompareAndSwap: etcd has no separate status.
func (s objects) CompareAndSwapStatus(
	ctx context.Context, kind store.Kind, version string, next store.Object,
) (store.Object, error) {
	return s.CompareAndSwap(ctx, kind, version, next)
}

// Delete deletes the object if it still has the version.
func (s objects) Delete(ctx context.Context, kind store.Kind, key store.Key, version string) error {
	name := s.key(kind, key)
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil || revision <= 0 {
		return fmt.Errorf("%s: %w", key, store.ErrConflict)
	}
	done, _, there, err := s.write(ctx, name, ifModified(name, revision), opDelete(message{}.text(1, name)))
	if err := swapError(done, there, err); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func swapError(done, there bool, err error) error {
	switch {
	case err != nil || done:
		return err
	case there:
		return store.ErrConflict
	}
	return store.ErrNotFound
}

func (s objects) stored(o store.Object, at int64, err error) (store.Object, error) {
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

// errUnknown: the outcome of the request is unknown.
var errUnknown = errors.New("no answer: the outcome of the request is unknown")

// write performs an operation if a condition holds; if not, there reports whether the key exists. It is not retried:
// the retry would see the result of the first try.
func (s objects) write(
	ctx context.Context, key string, condition, op message,
) (done bool, at int64, there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
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
		if isTransient(err) {
			s.r.drop(c)
		}
		return false, 0, false, fmt.Errorf("etcd: %w: %w", errUnknown, err)
	}
	return out.succeeded, out.revision, !out.succeeded && len(out.ranges) > 0 && len(out.ranges[0]) > 0, nil
}

// matches reports whether a key is of one of the kinds; without kinds, all match.
func (s objects) matches(key string, kinds []store.Kind) bool {
	for _, kind := range kinds {
		if strings.HasPrefix(key, s.keyPrefix(kind)) {
			return true
		}
	}
	return len(kinds) == 0
}
