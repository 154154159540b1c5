// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// Clean deletes the namespaces of a run and all that is in them, and waits until they are gone. Kubernetes empties a
// namespace that is deleted; the directory of a lab does not.
func Clean(ctx context.Context, objects store.Objects, namespace string, lab bool) error {
	if !IsName(namespace) {
		return model.Errorf(model.CodeInvalidConf, "for example "+NewName(),
			"namespace %q is not one of a connectivity test", namespace)
	}
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	for deleted := false; ; {
		left, err := clean(ctx, objects, namespace, lab, deleted)
		if err == nil && left == 0 {
			return nil
		}
		deleted = deleted || err == nil
		select {
		case <-ctx.Done():
			return model.Errorf(model.CodeTryAgain, "delete it", "namespace %s is not gone: %w", namespace,
				errors.Join(ctx.Err(), err))
		case <-time.After(pollInterval):
		}
	}
}

// clean deletes what is there, and returns how much was there. In a lab pods that end still write events; Kubernetes is
// asked again only whether it has finished.
func clean(ctx context.Context, objects store.Objects, namespace string, lab, deleted bool) (left int, err error) {
	var errs []error
	for _, name := range []string{namespace, namespace + policySuffix} {
		o, err := objects.Get(ctx, store.Namespaces(), store.NamespaceKey(name))
		switch {
		case err == nil:
			left++
			if lab || !deleted {
				err = objects.Delete(ctx, store.Namespaces(), o.Key, "")
			}
		case errors.Is(err, store.ErrNotFound):
			err = nil
		}
		errs = append(errs, err)
		if lab {
			n, err := empty(ctx, objects, name)
			left += n
			errs = append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

// empty deletes what a namespace has, and returns how much it was.
func empty(ctx context.Context, objects store.Objects, namespace string) (found int, err error) {
	var errs []error
	for _, kind := range []store.Kind{
		store.VirtualMachineInstances(), store.NetworkPolicies(), store.Pods(), store.Services(), store.NetworkAttachments(), events(),
	} {
		all, err := objects.List(ctx, kind)
		errs = append(errs, err)
		for _, o := range all {
			if o.Key.Namespace == namespace {
				found++
				errs = append(errs, remove(ctx, objects, kind, o.Key))
			}
		}
	}
	return found, errors.Join(errs...)
}

// Leftovers returns the namespaces of runs that were not cleaned up.
func Leftovers(ctx context.Context, objects store.Objects) ([]string, error) {
	all, err := objects.List(ctx, store.Namespaces())
	if err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	var out []string
	for _, o := range all {
		n, err := o.Namespace()
		if err == nil && IsName(n.Name) && n.Labels[managedBy] == manager {
			out = append(out, n.Name)
		}
	}
	return out, nil
}
