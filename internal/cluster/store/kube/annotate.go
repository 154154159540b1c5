// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// manager is weft's field manager.
const manager = "weft"

// attempts bounds the immediate retries of a write that conflicts with other writers of the pod.
const attempts = 5

// Annotate merges annotations into a pod's, asynchronously; an empty value removes one. It patches the pod's status, so
// the agent needs no right to change pods. While the server is unavailable the annotations are queued, also across
// restarts of the agent. A deleted pod, or a new one of its name, is not changed.
func (s *Store) Annotate(_ context.Context, ref model.PodRef, annotations map[string]string) error {
	s.annotations.add(ref, annotations)
	return nil
}

// annotate writes annotations now.
func (s *Store) annotate(ctx context.Context, ref model.PodRef, annotations map[string]string) error {
	uid := ref.UID
	if p, ok := s.cachedPod(ref); ok {
		uid = p.UID // the API's uid of a static pod
	}
	for try := 1; ; try++ {
		err := s.patchStatus(ctx, ref, uid, annotations)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case try == attempts || !apierrors.IsConflict(err) && !aboutUID(err):
			return err
		}
		p, getErr := s.Pod(ctx, ref)
		if errors.Is(getErr, store.ErrNotFound) {
			return nil
		}
		if getErr == nil {
			uid = p.UID
		}
		select {
		case <-s.cfg.After(retryFirst):
		case <-ctx.Done():
			return err
		}
	}
}

// aboutUID reports whether the server rejects a patch because the pod has another uid.
func aboutUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}

// patchStatus writes annotations once. The server rejects the uid if the pod was re-created.
func (s *Store) patchStatus(ctx context.Context, ref model.PodRef, uid string, annotations map[string]string) error {
	values := map[string]*string{}
	for k, v := range annotations {
		values[k] = nil
		if v != "" {
			values[k] = &v
		}
	}
	meta := map[string]any{"annotations": values}
	if uid != "" {
		meta["uid"] = uid
	}
	b, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	_, err = do(ctx, requestTimeout, s.clients.work.Patch(types.MergePatchType).
		AbsPath(path(pods(), ref.Namespace, ref.Name, "status")).Param("fieldManager", manager).Body(b))
	return err
}
