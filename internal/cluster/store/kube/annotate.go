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

// manager is the owner of fields that weft writes, as the server notes it.
const manager = "weft"

// attempts bound how often a write is tried at once against others who change the same pod.
const attempts = 5

// Annotate merges annotations into a pod's, behind the caller's back; an empty value takes one away. It goes through
// the pod's status, so the agent needs no right to change pods. While the server is away what is to be written waits,
// also over a restart of the agent. A pod that is gone, or another one of its name, is left alone.
func (s *Store) Annotate(_ context.Context, ref model.PodRef, annotations map[string]string) error {
	s.notes.add(ref, annotations)
	return nil
}

// annotate writes annotations now.
func (s *Store) annotate(ctx context.Context, ref model.PodRef, annotations map[string]string) error {
	uid := ref.UID
	if p, ok := s.podOnShelf(ref); ok {
		uid = p.UID // that of the API, for a static pod
	}
	for try := 1; ; try++ {
		err := s.patchStatus(ctx, ref, uid, annotations)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case try == attempts || !apierrors.IsConflict(err) && !aboutUID(err):
			return err
		}
		p, lookErr := s.Pod(ctx, ref)
		if errors.Is(lookErr, store.ErrNotFound) {
			return nil
		}
		if lookErr == nil {
			uid = p.UID
		}
		select {
		case <-s.cfg.After(againFirst):
		case <-ctx.Done():
			return err
		}
	}
}

// aboutUID tells whether the server refuses a patch because the pod's uid is another.
func aboutUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}

// patchStatus writes annotations once. The uid makes the server refuse a pod that is another one by now.
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
	_, err = ask(ctx, patient, s.clients.work.Patch(types.MergePatchType).
		AbsPath(path(pods(), ref.Namespace, ref.Name, "status")).Param("fieldManager", manager).Body(b))
	return err
}
