// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// Resolver finds the networks of pods.
type Resolver struct {
	// Cluster is nil where nobody knows of pods and networks: then a pod has what the node's configuration gives it.
	Cluster Cluster
	// Devices is nil where there are no devices to hand out.
	Devices Devices
	// Keep says whether the addresses of virtual machines stay with them, where their pods do not.
	Keep model.KeepAddress
	// PermitPaths are the files and directories of the node that a network's object may name; nil: any.
	PermitPaths []string
	// Root is where the agent sees the node's files; empty: where they are.
	Root string
}

// Devices are those that the kubelet gave to pods.
type Devices interface {
	// Of are the ids of a pod's devices by the names of their resources, sorted.
	Of(ctx context.Context, pod model.PodRef) (map[string][]string, error)
}

// Plan is to which networks a pod is to be attached.
type Plan struct {
	// Pod is nil where the call is about no pod of a cluster.
	Pod         *model.Pod
	Attachments []Attachment
	// Doubts are what in the annotations is allowed and hardly meant.
	Doubts []string
}

// resolving is the work on one call.
type resolving struct {
	r       *Resolver
	call    cni.Call
	s       Settings
	pod     *model.Pod
	devices map[string][]string // those that no attachment has yet
	used    []string            // devices that attachments have already
	doubts  []string
}

// Resolve finds the networks of an ADD.
func (r *Resolver) Resolve(ctx context.Context, call cni.Call) (Plan, error) {
	s, err := ParseSettings(call, r.Root)
	if err != nil {
		return Plan{}, err
	}
	if err := s.waitReady(ctx); err != nil {
		return Plan{}, err
	}
	w := &resolving{r: r, call: call, s: s}
	if w.pod, err = w.find(ctx); err != nil {
		return Plan{}, err
	}
	sources, err := w.sources(ctx)
	if err != nil {
		return Plan{Pod: w.pod}, err
	}
	all, err := w.attachments(sources)
	if err == nil {
		err = w.say(ctx, all)
	}
	return Plan{Pod: w.pod, Attachments: all, Doubts: w.doubts}, err
}

// attachments makes the networks ready.
func (w *resolving) attachments(sources []source) ([]Attachment, error) {
	prev, err := outerOf(w.call)
	if err != nil {
		return nil, err
	}
	routes(sources)
	all := make([]Attachment, 0, len(sources))
	names := map[string]string{}
	for i, src := range sources {
		a, err := attachment(w.call, w.s, i, src)
		if err != nil {
			return nil, w.place(err, i, src)
		}
		if other, ok := names[a.Request.IfName]; ok {
			return nil, model.Faultf(model.CodeInvalidConf, "give each its own",
				"interface %s: both network %s and network %s are to have it",
				a.Request.IfName, other, a.Label)
		}
		names[a.Request.IfName] = a.Label
		if src.bare {
			a.Prev = &model.Result{}
		}
		if a.Request.Origin, err = w.origin(i, src, a); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	all[0].Prev = prev
	return all, nil
}

// place says in which network an error is.
func (w *resolving) place(err error, i int, src source) error {
	// What was filled in has moved the places in the text.
	if bad := cni.Decode("its configuration", src.raw, &map[string]json.RawMessage{}); bad != nil {
		err = bad
	}
	switch {
	case src.selection != nil:
		return within(err, "network "+src.label)
	case i < len(w.s.Delegates):
		return inDelegate(err, w.s.Name, i)
	}
	return within(err, "network "+w.s.Name+": network "+src.label)
}

// origin is what is remembered of an attachment beside what was done.
func (w *resolving) origin(i int, src source, a Attachment) (*model.Origin, error) {
	if w.pod == nil {
		return nil, nil
	}
	o := &model.Origin{
		Pod: ref(*w.pod), Network: a.Label, Primary: i == 0, Device: src.id(),
		NoVersion: src.selection != nil && src.noVersion(),
	}
	if o.Device != "" {
		o.DeviceFile = w.s.seen(deviceFile(src.label, a.Request))
	}
	if err := w.machine(o); err != nil {
		return nil, err
	}
	if i == 0 {
		o.Call = w.call.Conf
		return o, nil
	}
	if src.selection == nil {
		return o, nil
	}
	var err error
	if o.Asked, err = json.Marshal(src.selection); err != nil {
		return nil, fmt.Errorf("network %s: %w", a.Label, err)
	}
	return o, nil
}

func ref(p model.Pod) model.PodRef {
	return model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// sources are the networks in their order: the node's, then those that the pod asks for.
func (w *resolving) sources(ctx context.Context) ([]source, error) {
	all, err := w.given(ctx)
	if err != nil || w.pod == nil {
		return all, err
	}
	if text := w.pod.Annotations[DefaultKey]; text != "" {
		if all[0], err = w.first(ctx, text); err != nil {
			return nil, err
		}
	}
	list, doubts, err := ParseSelections(NetworksKey, w.pod.Annotations[NetworksKey], w.pod.Namespace)
	if err != nil {
		return nil, err
	}
	w.doubts = append(w.doubts, doubts...)
	for i := range list {
		src, err := w.selected(ctx, &list[i])
		if err != nil {
			return nil, within(err, fmt.Sprintf("annotation %s: element %d", NetworksKey, i+1))
		}
		all = append(all, src)
	}
	aux, err := w.auxiliary()
	if err != nil || aux == nil {
		return all, err
	}
	return append(all, *aux), nil
}

// given are the networks that the node's configuration gives to the pod.
func (w *resolving) given(ctx context.Context) ([]source, error) {
	var all []source
	for i, raw := range w.s.Delegates {
		all = append(all, delegateSource(w.s, i, raw))
	}
	names := w.s.DefaultNetworks
	if len(all) == 0 {
		names = append([]string{w.s.ClusterNetwork}, names...)
	}
	for i, name := range names {
		spared := w.pod != nil && w.s.system(w.pod.Namespace)
		if spared && (len(w.s.Delegates) > 0 || i > 0) {
			break
		}
		src, err := w.named(ctx, name)
		if err != nil {
			key := "defaultNetworks"
			if len(w.s.Delegates) == 0 && i == 0 {
				key = "clusterNetwork"
			}
			return nil, within(err, fmt.Sprintf("network %s: %s %q", w.s.Name, key, name))
		}
		all = append(all, src)
	}
	return all, nil
}

// Given are the networks that the node's configuration gives to every pod, for calls that are about no pod.
func (r *Resolver) Given(ctx context.Context, call cni.Call) ([]Attachment, error) {
	s, err := ParseSettings(call, r.Root)
	if err != nil {
		return nil, err
	}
	w := &resolving{r: r, call: call, s: s}
	sources, err := w.given(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Attachment, 0, len(sources))
	for i, src := range sources {
		a, err := attachment(call, s, i, src)
		if err != nil {
			return nil, w.place(err, i, src)
		}
		all = append(all, a)
	}
	return all, nil
}
