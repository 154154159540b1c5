// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/weft-net/weft/internal/cluster/store"
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

// page is how many objects are asked for at once.
const page = 500

// Each visits all objects of a kind, page by page; all pages are of one moment. One that cannot be understood ends it.
func (o objects) Each(ctx context.Context, kind store.Kind, visit func(store.Object)) error {
	for more := ""; ; {
		request := o.s.clients.work.Get().AbsPath(path(kind, "", "")).Param("limit", strconv.Itoa(page))
		if more != "" {
			request = request.Param("continue", more)
		}
		raw, err := ask(ctx, patient, request)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind.Resource, err)
		}
		list, err := newItems(kind, raw, versioned)
		if err != nil {
			return err
		}
		for _, i := range list.Items {
			if i.err != nil {
				return i.err
			}
			visit(i.object)
		}
		if more = list.Continue; more == "" {
			return nil
		}
	}
}

// Watch tells what is there, and then what changes. A kind that the server does not have has no objects, and is
// followed when it comes.
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
	return answer(x.Key)(o.write(ctx, func(work *rest.RESTClient) *rest.Request {
		return asJSON(work.Post().AbsPath(path(kind, x.Key.Namespace, "")).Param("fieldManager", manager), b)
	}))
}

// CompareAndSwap replaces the object if it has the version.
func (o objects) CompareAndSwap(
	ctx context.Context, kind store.Kind, version string, next store.Object,
) (store.Object, error) {
	return o.swap(ctx, kind, version, next)
}

// CompareAndSwapStatus replaces the object's status if it has the version.
func (o objects) CompareAndSwapStatus(
	ctx context.Context, kind store.Kind, version string, next store.Object,
) (store.Object, error) {
	return o.swap(ctx, kind, version, next, "status")
}

func (o objects) swap(
	ctx context.Context, kind store.Kind, version string, next store.Object, sub ...string,
) (store.Object, error) {
	if version == "" {
		return next, fmt.Errorf("%s: no version to compare with: %w", next.Key, store.ErrConflict)
	}
	b, err := body(next, version)
	if err != nil {
		return next, err
	}
	return answer(next.Key)(o.write(ctx, func(work *rest.RESTClient) *rest.Request {
		return asJSON(
			work.Put().AbsPath(path(kind, next.Key.Namespace, next.Key.Name, sub...)).Param("fieldManager", manager), b,
		)
	}))
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
	_, err = o.write(ctx, func(work *rest.RESTClient) *rest.Request {
		return asJSON(work.Delete().AbsPath(path(kind, key.Namespace, key.Name)), b)
	})
	return understood(key, err)
}

// write makes a request that writes. It is repeated only where the server says that it did not look at it: one whose
// storage is late says that it failed, and may have done it all the same. To a repetition it answers that the object
// was changed, and the caller takes that for "not done".
func (o objects) write(ctx context.Context, request func(*rest.RESTClient) *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	for {
		raw, err := ask(ctx, patient, request(o.s.clients.work).MaxRetries(0))
		if !apierrors.IsTooManyRequests(err) {
			return raw, err
		}
		pause := againFirst
		if seconds, told := apierrors.SuggestsClientDelay(err); told {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
		select {
		case <-o.s.cfg.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
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
