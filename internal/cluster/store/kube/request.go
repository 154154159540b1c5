// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/weft-net/weft/internal/cluster/store"
)

// requestTimeout bounds a background request.
const requestTimeout = 10 * time.Second

// qualified returns a kind's resource, with its group where that is needed to tell it from others: two groups have Calico's
// kinds, one of which is called like one of Kubernetes.
func qualified(kind store.Kind) string {
	if strings.HasSuffix(kind.Group, "projectcalico.org") {
		return kind.Resource + "." + kind.Group
	}
	return kind.Resource
}

// path returns the URL path of a kind's objects, or of one of them.
func path(kind store.Kind, namespace, name string, sub ...string) string {
	parts := []string{"/apis", kind.Group, kind.Version}
	if kind.Group == "" {
		parts = []string{"/api", kind.Version}
	}
	if kind.Namespaced && namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	parts = append(parts, kind.Resource)
	if name != "" {
		parts = append(parts, name)
	}
	return strings.Join(append(parts, sub...), "/")
}

// do makes one request and returns the body of the response.
func do(ctx context.Context, limit time.Duration, r *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil { // the server's Status, which Raw does not decode
		return nil, ExplainForbidden(err)
	}
	return answer.Raw()
}

// storeError wraps the errors of package store for the server's errors that callers branch on.
func storeError(key store.Key, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w", key, store.ErrNotFound)
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s: %w", key, store.ErrExists)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s: %w: %w", key, store.ErrConflict, err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// isTransient reports whether the request may succeed later: the server is unavailable, overloaded or starting.
func isTransient(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return true // a network error
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err)
}

// versioned returns the object with the server's resource version, which compare-and-swap compares.
func versioned(raw []byte) (store.Object, error) {
	var head struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return store.Object{}, fmt.Errorf("answer of the API server: %w", err)
	}
	o, err := store.NewObject(raw)
	if err == nil {
		o, err = o.Edited(dropManagedFields)
	}
	o.Version = head.Metadata.ResourceVersion
	return o, err
}

// dropManagedFields removes managedFields.
func dropManagedFields(fields map[string]any) error {
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	return nil
}

// body returns the object as a request body with this resource version.
func body(o store.Object, version string) ([]byte, error) {
	next, err := o.Edited(func(fields map[string]any) error {
		meta, ok := fields["metadata"].(map[string]any)
		if !ok {
			return fmt.Errorf("metadata is missing")
		}
		delete(meta, "resourceVersion")
		if version != "" {
			meta["resourceVersion"] = version
		}
		return nil
	})
	return next.Raw, err
}

func asJSON(r *rest.Request, b []byte) *rest.Request {
	return r.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(b)
}
