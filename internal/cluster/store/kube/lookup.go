// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// lookupLimit bounds the request for what is on no shelf. Somebody waits for it.
const lookupLimit = time.Second

// configHash is, on the pod that stands for a static one in the API, the uid by which the kubelet knows it.
const configHash = "kubernetes.io/config.hash"

// Pod is the pod, from the shelf or else by one request. The error wraps store.ErrNotFound when the server has no such
// pod.
func (s *Store) Pod(ctx context.Context, ref model.PodRef) (model.Pod, error) {
	key := store.PodKey(ref.Namespace, ref.Name)
	if p, ok := s.podOnShelf(ref); ok {
		return p, nil
	}
	o, err := s.look(ctx, pods(), key)
	if err != nil {
		if p, ok := s.podOnShelf(ref); ok { // it came meanwhile
			return p, nil
		}
		return model.Pod{}, err
	}
	p, err := o.Pod()
	switch {
	case err != nil:
		return p, err
	case !same(p, ref):
		return p, fmt.Errorf("%s: uid is %s, not %s: %w", key, p.UID, ref.UID, store.ErrNotFound)
	}
	return p, nil
}

func (s *Store) podOnShelf(ref model.PodRef) (model.Pod, bool) {
	o, ok := s.shelf(pods()).get(store.PodKey(ref.Namespace, ref.Name))
	if !ok {
		return model.Pod{}, false
	}
	p, err := o.Pod()
	return p, err == nil && same(p, ref)
}

// same tells whether the pod is the one that is meant: a name is used again, and a static pod has two uids.
func same(p model.Pod, ref model.PodRef) bool {
	return ref.UID == "" || ref.UID == p.UID || ref.UID == p.Annotations[configHash]
}

// Network is the network of that name, from the shelf or else by one request.
func (s *Store) Network(ctx context.Context, namespace, name string) (model.NetworkAttachment, error) {
	key := store.NetworkAttachments().Key(namespace, name)
	o, ok := s.shelf(store.NetworkAttachments()).get(key)
	if !ok {
		var err error
		if o, err = s.look(ctx, store.NetworkAttachments(), key); err != nil {
			return model.NetworkAttachment{}, err
		}
	}
	return o.NetworkAttachment()
}

// Namespace is the namespace of that name, from the shelf or else by one request.
func (s *Store) Namespace(ctx context.Context, name string) (model.Namespace, error) {
	key := store.NamespaceKey(name)
	o, ok := s.shelf(namespaces()).get(key)
	if !ok {
		var err error
		if o, err = s.look(ctx, namespaces(), key); err != nil {
			return model.Namespace{}, err
		}
	}
	return o.Namespace()
}

// look asks the server once, for not longer than somebody can wait.
func (s *Store) look(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	raw, err := ask(ctx, lookupLimit, s.clients.lookup.Get().AbsPath(path(kind, key.Namespace, key.Name)).MaxRetries(0))
	if err == nil {
		return s.reduceFact(raw)
	}
	if err = understood(key, err); errors.Is(err, store.ErrNotFound) {
		return store.Object{}, err
	}
	return store.Object{}, model.Faultf(model.CodeTryAgain,
		"it is tried again; look at the API server, and at the agent's rights to read "+kind.Resource,
		"%s is not known yet, and the API server does not tell: %w", key, err)
}
