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

// patient bounds a request that nobody waits for.
const patient = 10 * time.Second

// path is the URL path of a kind's objects, or of one of them.
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

// ask makes one request and gives the body of its answer.
func ask(ctx context.Context, limit time.Duration, r *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil { // in the server's own words, which Raw does not read
		return nil, err
	}
	return answer.Raw()
}

// understood gives the server's errors that callers branch on their names in this house.
func understood(key store.Key, err error) error {
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

// passing tells whether the same request may succeed later: the server is away, overloaded or starting.
func passing(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return true // the network's
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err)
}

// versioned is the object with the server's version, which is what compare-and-swap compares here.
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
		o, err = o.Edited(forget)
	}
	o.Version = head.Metadata.ResourceVersion
	return o, err
}

// forget takes away what only the server reads.
func forget(fields map[string]any) error {
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	return nil
}

// body is the object as a request carries it, at that version.
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
