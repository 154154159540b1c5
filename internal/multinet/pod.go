// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"errors"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// annotationsCap is the capability by which a runtime passes a pod's annotations.
const annotationsCap = "io.kubernetes.cri.pod-annotations"

// find returns the pod of the call: from the cache, from the runtime's capabilities, or by a request. nil: the call has
// no pod.
func (w *resolving) find(ctx context.Context) (*model.Pod, error) {
	r := w.call.Request
	namespace, _ := r.Arg("K8S_POD_NAMESPACE")
	name, _ := r.Arg("K8S_POD_NAME")
	uid, _ := r.Arg("K8S_POD_UID")
	if w.r.Cluster == nil || namespace == "" || name == "" {
		return nil, nil
	}
	pod := model.Pod{Namespace: namespace, Name: name, UID: uid}
	if said, ok := annotations(w.s.RuntimeConfig[annotationsCap]); ok {
		// The kubelet started the pod with these annotations, so no request is needed.
		pod.Annotations = said
		return &pod, nil
	}
	found, err := w.r.Cluster.Pod(ctx, ref(pod))
	switch {
	case errors.Is(err, store.ErrNotFound):
		// A static pod, whose object is created later, or a test call without a pod: it gets the default networks.
		return &pod, nil
	case err != nil:
		return nil, model.Errorf(model.CodeTryAgain, "", "pod %s/%s is not known yet: %w", namespace, name, err)
	}
	found.UID = uid // the mirror pod of a static pod has a different UID
	return &found, nil
}

// annotations returns those that a runtime passes.
func annotations(v any) (map[string]string, bool) {
	said, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	out := make(map[string]string, len(said))
	for k, v := range said {
		if text, ok := v.(string); ok {
			out[k] = text
		}
	}
	return out, true
}
