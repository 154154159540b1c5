// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weft-net/weft/internal/store"
)

// Objects is the server as a place for objects of any kind. Versions are the server's.
func (s *Store) Objects() store.Objects { return objects{s} }

type objects struct{ s *Store }

// Get asks the server.
func (o objects) Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	return answer(key)(ask(ctx, patient, o.s.clients.work.Get().AbsPath(path(kind, key.Namespace, key.Name))))
}

// List asks the server. A kind that it does not have has no objects.
func (o objects) List(ctx context.Context, kind store.Kind) ([]store.Object, error) {
	raw, err := ask(ctx, patient, o.s.clients.work.Get().AbsPath(path(kind, "", "")))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Resource, err)
	}
	list, err := newItems(kind, raw, versioned)
	if err != nil {
		return nil, err
	}
	out := make([]store.Object, 0, len(list.Items))
	for _, i := range list.Items {
		if i.err != nil {
			return nil, i.err
		}
		out = append(out, i.object)
	}
	return out, nil
}

// Watch tells what is there, and then what changes. A kind that the server does not have has no objects, and is followed
// when it comes.
func (o objects) Watch(ctx context.Context, kinds ...store.Kind) (<-chan store.Event, error) {
	var shelfs []*shelf
	for _, kind := range kinds {
		shelfs = append(shelfs, newShelf(kind))
	}
	return o.s.follow(ctx, versioned, func() {}, shelfs...), nil
}

// Create makes the object.
func (o objects) Create(ctx context.Context, kind store.Kind, x store.Object) (store.Object, error) {
	b, err := body(x, "")
	if err != nil {
		return x, err
	}
	return answer(x.Key)(ask(ctx, patient, asJSON(o.s.clients.work.Post().AbsPath(path(kind, x.Key.Namespace, "")).
		Param("fieldManager", manager), b)))
}

// CompareAndSwap replaces the object if it has the version.
func (o objects) CompareAndSwap(ctx context.Context, kind store.Kind, version string, next store.Object) (store.Object, error) {
	return o.swap(ctx, kind, version, next)
}

// CompareAndSwapStatus replaces the object's status if it has the version.
func (o objects) CompareAndSwapStatus(ctx context.Context, kind store.Kind, version string, next store.Object) (store.Object, error) {
	return o.swap(ctx, kind, version, next, "status")
}

func (o objects) swap(ctx context.Context, kind store.Kind, version string, next store.Object, sub ...string) (store.Object, error) {
	if version == "" {
		return next, fmt.Errorf("%s: no version to compare with: %w", next.Key, store.ErrConflict)
	}
	b, err := body(next, version)
	if err != nil {
		return next, err
	}
	return answer(next.Key)(ask(ctx, patient, asJSON(o.s.clients.work.Put().AbsPath(path(kind, next.Key.Namespace, next.Key.Name, sub...)).
		Param("fieldManager", manager), b)))
}

// Delete takes the object away if it has the version; with an empty one whatever it is by now.
func (o objects) Delete(ctx context.Context, kind store.Kind, key store.Key, version string) error {
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	if version != "" {
		options["preconditions"] = map[string]any{"resourceVersion": version}
	}
	b, err := json.Marshal(options)
	if err != nil {
		return err
	}
	_, err = ask(ctx, patient, asJSON(o.s.clients.work.Delete().AbsPath(path(kind, key.Namespace, key.Name)), b))
	return understood(key, err)
}

// answer reads the object in an answer.
func answer(key store.Key) func([]byte, error) (store.Object, error) {
	return func(raw []byte, err error) (store.Object, error) {
		if err != nil {
			return store.Object{Key: key}, understood(key, err)
		}
		return versioned(raw)
	}
}
