// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/store"
)

// The pause before a write is tried again: from the first to the longest.
const againFirst, againLongest = 200 * time.Millisecond, 5 * time.Second

// Annotate merges annotations into a pod's; an empty value takes one away. It goes through the pod's status, so the agent
// needs no right to change pods. While the server is away, or others change the pod, it tries again until ctx ends. A
// pod that is gone, or another one of its name, is no error.
func (s *Store) Annotate(ctx context.Context, ref model.PodRef, annotations map[string]string) error {
	uid := ref.UID
	if p, ok := s.podOnShelf(ref); ok {
		if carries(p, annotations) {
			return nil
		}
		uid = p.UID // that of the API, for a static pod
	}
	for pause := againFirst; ; pause = min(2*pause, againLongest) {
		err := s.patchStatus(ctx, ref, uid, annotations)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case apierrors.IsConflict(err), apierrors.IsInvalid(err) && aboutUID(err):
			p, lookErr := s.Pod(ctx, ref)
			if errors.Is(lookErr, store.ErrNotFound) {
				return nil
			}
			if lookErr == nil {
				uid = p.UID
			}
		case !passing(err):
			return fmt.Errorf("annotations of pod %s: %w", ref, err)
		}
		select {
		case <-s.cfg.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("annotations of pod %s: %w: %w", ref, ctx.Err(), err)
		}
	}
}

// aboutUID tells whether the server refuses a patch because the pod's uid is another.
func aboutUID(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// carries tells whether the pod has the annotations already.
func carries(p model.Pod, annotations map[string]string) bool {
	for k, v := range annotations {
		if have, ok := p.Annotations[k]; have != v || ok != (v != "") {
			return false
		}
	}
	return true
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

// manager is the owner of fields that weft writes, as the server notes it.
const manager = "weft"
