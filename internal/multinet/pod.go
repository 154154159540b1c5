// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"errors"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// annotationsCap is the capability by which a runtime tells a pod's annotations.
const annotationsCap = "io.kubernetes.cri.pod-annotations"

// find finds the pod of the call: in memory, in what the runtime says, or by a question. nil: the call is about none.
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
		// It is what the kubelet started the pod with, so there is nothing to ask and nothing to wait for.
		pod.Annotations = said
		return &pod, nil
	}
	found, err := w.r.Cluster.Pod(ctx, ref(pod))
	switch {
	case errors.Is(err, store.ErrNotFound):
		// A static pod, of which the cluster is told later, or somebody tries the network out: it gets what every pod gets.
		return &pod, nil
	case err != nil:
		return nil, model.Faultf(model.CodeTryAgain, "", "pod %s/%s is not known yet: %w", namespace, name, err)
	}
	found.UID = uid // of a static pod the cluster knows a picture with a uid of its own
	return &found, nil
}

// annotations are those that a runtime tells.
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
