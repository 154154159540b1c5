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

// Objects returns the server as a store.Objects. Versions are the server's.
func (s *Store) Objects() store.Objects { return objects{s} }

type objects struct{ s *Store }

// Get reads an object.
func (o objects) Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	return answer(key)(do(ctx, requestTimeout, o.s.clients.work.Get().AbsPath(path(kind, key.Namespace, key.Name))))
}

// List reads the objects of a kind. A kind that the server does not have has no objects.
func (o objects) List(ctx context.Context, kind store.Kind) ([]store.Object, error) {
	raw, err := do(ctx, requestTimeout, o.s.clients.work.Get().AbsPath(path(kind, "", "")))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Resource, err)
	}
	list, err := newItems(kind, raw, versioned, nil)
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

// MayWatch reports whether this user may list and watch all objects of a kind (SelfSubjectAccessReview).
func (o objects) MayWatch(ctx context.Context, kind store.Kind) (bool, error) {
	review := store.Kind{
		Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectAccessReview", Resource: "selfsubjectaccessreviews",
	}
	for _, verb := range []string{"list", "watch"} {
		type attributes struct {
			Verb     string `json:"verb"`
			Group    string `json:"group"`
			Resource string `json:"resource"`
		}
		type spec struct {
			Attributes attributes `json:"resourceAttributes"`
		}
		var answer struct {
			Status struct{ Allowed, Denied bool }
		}
		err := o.s.review(ctx, review, spec{attributes{verb, kind.Group, kind.Resource}}, &answer)
		if err != nil || !answer.Status.Allowed || answer.Status.Denied {
			return false, err
		}
	}
	return true, nil
}

// page is the page size of lists.
const page = 500

// Each visits all objects of a kind, page by page; all pages are of one resource version. An invalid object is an
// error.
func (o objects) Each(ctx context.Context, kind store.Kind, visit func(store.Object)) error {
	for more := ""; ; {
		request := o.s.clients.work.Get().AbsPath(path(kind, "", "")).Param("limit", strconv.Itoa(page))
		if more != "" {
			request = request.Param("continue", more)
		}
		raw, err := do(ctx, requestTimeout, request)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind.Resource, err)
		}
		list, err := newItems(kind, raw, versioned, nil)
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

// Watch sends all objects, and then changes. A kind that the server does not have has no objects, and is watched once
// its CRD is installed.
func (o objects) Watch(ctx context.Context, kinds ...store.Kind) (<-chan store.Event, error) {
	var caches []*objectCache
	for _, kind := range kinds {
		caches = append(caches, newObjectCache(kind))
	}
	return o.s.follow(ctx, versioned, func() {}, caches...), nil
}

// Create creates the object.
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

// Delete deletes the object if it has the version; with an empty one unconditionally.
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
	return storeError(key, err)
}

// write makes a request that writes. It is retried only if the server rejected it without processing (429): after a
// timeout of its storage the write may have succeeded, and a retry would fail with a conflict that the caller takes for
// "not done".
func (o objects) write(ctx context.Context, request func(*rest.RESTClient) *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		raw, err := do(ctx, requestTimeout, request(o.s.clients.work).MaxRetries(0))
		if !apierrors.IsTooManyRequests(err) {
			return raw, err
		}
		pause := retryFirst
		if seconds, reported := apierrors.SuggestsClientDelay(err); reported {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
		select {
		case <-o.s.cfg.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// answer decodes the object of a response.
func answer(key store.Key) func([]byte, error) (store.Object, error) {
	return func(raw []byte, err error) (store.Object, error) {
		if err != nil {
			return store.Object{Key: key}, storeError(key, err)
		}
		return versioned(raw)
	}
}
