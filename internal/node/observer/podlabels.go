// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"cmp"
	"maps"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// configHash is the annotation of a static pod with the UID that its attachments have.
const configHash = "kubernetes.io/config.hash"

// podLabels are the labels of this node's pods.
type podLabels struct {
	pods []model.Pod // the slice that they were read from
	all  map[string]labeledPod
}

// labeledPod is a pod of a name.
type labeledPod struct {
	uid    string
	labels flow.LabelSet
}

// read follows changes, and reports whether a pod has other labels than before.
func (l *podLabels) read(cfg Config) (changed bool) {
	if cfg.Pods == nil {
		return false
	}
	pods := cfg.Pods()
	if l.all != nil && len(pods) == len(l.pods) && (len(pods) == 0 || &pods[0] == &l.pods[0]) {
		return false
	}
	next := map[string]labeledPod{}
	for _, p := range pods {
		if p.Node == cfg.Node {
			next[p.Namespace+"/"+p.Name] = labeledPod{cmp.Or(p.Annotations[configHash], p.UID), flow.NewLabelSet(p.Labels)}
		}
	}
	changed = !maps.Equal(l.all, next)
	l.pods, l.all = pods, next
	return changed
}

// of returns the labels of an endpoint's pod, or container; of another pod of the same name none are known.
func (l *podLabels) of(end model.WorkloadEndpoint) flow.LabelSet {
	if end.Container && len(end.Labels) > 0 {
		return flow.NewLabelSet(end.Labels)
	}
	p := l.all[end.Pod.Namespace+"/"+end.Pod.Name]
	if end.Pod.UID != "" && p.uid != "" && p.uid != end.Pod.UID {
		return flow.LabelSet{}
	}
	return p.labels
}
