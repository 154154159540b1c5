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

// lookupLimit bounds the request for an object that is not cached. A CNI call waits for it.
const lookupLimit = time.Second

// configHash is the annotation of a static pod's mirror pod with the kubelet's uid.
const configHash = "kubernetes.io/config.hash"

// Pod returns a pod, from the cache or else by one request. The error wraps store.ErrNotFound if the server has no such
// pod.
func (s *Store) Pod(ctx context.Context, ref model.PodRef) (model.Pod, error) {
	key := store.PodKey(ref.Namespace, ref.Name)
	if p, ok := s.cachedPod(ref); ok {
		return p, nil
	}
	o, err := s.lookup(ctx, pods(), key)
	if err != nil {
		if p, ok := s.cachedPod(ref); ok { // it was cached meanwhile
			return p, nil
		}
		return model.Pod{}, err
	}
	p, err := o.Pod()
	switch {
	case err != nil:
		return p, err
	case !samePod(p, ref):
		return p, fmt.Errorf("%s: uid is %s, not %s: %w", key, p.UID, ref.UID, store.ErrNotFound)
	}
	return p, nil
}

func (s *Store) cachedPod(ref model.PodRef) (model.Pod, bool) {
	o, ok := s.cache(pods()).get(store.PodKey(ref.Namespace, ref.Name))
	if !ok {
		return model.Pod{}, false
	}
	p, err := o.Pod()
	return p, err == nil && samePod(p, ref)
}

// samePod reports whether the pod is the referenced one: names are reused, and a static pod has two uids.
func samePod(p model.Pod, ref model.PodRef) bool {
	return ref.UID == "" || ref.UID == p.UID || ref.UID == p.Annotations[configHash]
}

// Network returns the network of that name, from the cache or else by one request.
func (s *Store) Network(ctx context.Context, namespace, name string) (model.NetworkAttachment, error) {
	key := store.NetworkAttachments().Key(namespace, name)
	o, ok := s.cache(store.NetworkAttachments()).get(key)
	if !ok {
		var err error
		if o, err = s.lookup(ctx, store.NetworkAttachments(), key); err != nil {
			return model.NetworkAttachment{}, err
		}
	}
	return o.NetworkAttachment()
}

// Namespace returns the namespace of that name, from the cache or else by one request.
func (s *Store) Namespace(ctx context.Context, name string) (model.Namespace, error) {
	key := store.NamespaceKey(name)
	o, ok := s.cache(namespaces()).get(key)
	if !ok {
		var err error
		if o, err = s.lookup(ctx, namespaces(), key); err != nil {
			return model.Namespace{}, err
		}
	}
	return o.Namespace()
}

// VMInstance returns KubeVirt's instance of a VM, by one request. The error wraps store.ErrNotFound if there is none.
func (s *Store) VMInstance(ctx context.Context, namespace, name string) (store.Object, error) {
	kind := store.VirtualMachineInstances()
	raw, err := s.request(ctx, kind, kind.Key(namespace, name))
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(raw)
}

// lookup returns an object by one request, reduced to what the agent reads.
func (s *Store) lookup(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	raw, err := s.request(ctx, kind, key)
	if err != nil {
		return store.Object{}, err
	}
	return s.reduceFact(raw)
}

// request makes one request with a short timeout.
func (s *Store) request(ctx context.Context, kind store.Kind, key store.Key) ([]byte, error) {
	raw, err := do(ctx, lookupLimit, s.clients.lookup.Get().AbsPath(path(kind, key.Namespace, key.Name)).MaxRetries(0))
	if err == nil {
		return raw, nil
	}
	if err = storeError(key, err); errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return nil, model.Errorf(model.CodeTryAgain,
		"it is retried; check the API server, and the agent's right to read "+kind.Resource,
		"%s is not cached, and the API server does not answer: %w", key, err)
}
