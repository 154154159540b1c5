// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// Resolver resolves the networks of pods.
type Resolver struct {
	// Cluster is nil if there is no cluster: then a pod has the networks of the node's configuration only.
	Cluster Cluster
	// Devices is nil if there are no devices.
	Devices Devices
	// Keep reports whether the addresses of virtual machines stay with them by default.
	Keep model.KeepAddress
	// PermitPaths are the files and directories of the node that a network's object may name; nil: any.
	PermitPaths []string
	// Root is the directory at which the agent sees the node's files; empty: /.
	Root string

	parsed parsedNetworks
}

// Devices returns the devices that the kubelet assigned to pods.
type Devices interface {
	// Of returns the IDs of a pod's devices by the names of their resources, sorted.
	Of(ctx context.Context, pod model.PodRef) (map[string][]string, error)
}

// Plan has the networks of a pod.
type Plan struct {
	// Pod is nil if the call has no pod of a cluster.
	Pod         *model.Pod
	Attachments []Attachment
	// Warnings are about annotations that are valid and probably not intended.
	Warnings []string
	// ByMultus: Multus itself executes weft for the pod's first network, and manages the others and the network status.
	ByMultus bool
}

// resolving is the resolution of one call.
type resolving struct {
	r        *Resolver
	call     cni.Call
	s        Settings
	pod      *model.Pod
	devices  map[string][]string // those without an attachment
	used     []string            // devices that attachments have already
	warnings []string
	byMultus bool
}

// Resolve resolves the networks of an ADD.
func (r *Resolver) Resolve(ctx context.Context, call cni.Call) (Plan, error) {
	s, err := ParseSettings(call, r.Root)
	if err != nil {
		return Plan{}, err
	}
	if err := s.waitReady(ctx); err != nil {
		return Plan{}, err
	}
	// Multus does not pass the pod's annotations, as the runtime does.
	w := &resolving{r: r, call: call, s: s, byMultus: ByMultus(call.Request) && s.RuntimeConfig[annotationsCap] == nil}
	if w.pod, err = w.find(ctx); err != nil {
		return Plan{}, err
	}
	sources, err := w.sources(ctx)
	if err != nil {
		return Plan{Pod: w.pod}, err
	}
	all, err := w.attachments(sources)
	if err == nil {
		keepGuest(all)
		err = w.addPodSettings(ctx, all)
	}
	return Plan{Pod: w.pod, Attachments: all, Warnings: w.warnings, ByMultus: w.byMultus}, err
}

// attachments prepares the networks for their plugins.
func (w *resolving) attachments(sources []source) ([]Attachment, error) {
	prev, err := outerOf(w.call)
	if err != nil {
		return nil, err
	}
	routes(sources)
	all := make([]Attachment, 0, len(sources))
	names := map[string]string{}
	for i, src := range sources {
		a, err := w.r.attachment(w.call, w.s, i, src)
		if err != nil {
			return nil, w.locate(err, i, src)
		}
		if other, ok := names[a.Request.IfName]; ok {
			return nil, model.Errorf(model.CodeInvalidConf, "give each its own",
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

// locate adds the network to an error.
func (w *resolving) locate(err error, i int, src source) error {
	// Added defaults have moved the offsets in the text.
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

// origin returns what is recorded of an attachment besides its plan.
func (w *resolving) origin(i int, src source, a Attachment) (*model.Origin, error) {
	if w.pod == nil {
		return nil, nil
	}
	o := &model.Origin{
		Pod: ref(*w.pod), Network: a.Label, Primary: i == 0, Device: src.id(),
		NoVersion: src.selection != nil && src.noVersion(), SinglePlugin: w.byMultus,
	}
	if o.Device != "" {
		o.DeviceFile = w.s.seen(deviceFile(src.label, a.Request))
	}
	if err := w.readVM(o); err != nil {
		return nil, err
	}
	if i == 0 {
		o.RuntimeConf = w.call.Conf
		return o, nil
	}
	if src.selection == nil {
		return o, nil
	}
	var err error
	if o.Selection, err = json.Marshal(src.selection); err != nil {
		return nil, fmt.Errorf("network %s: %w", a.Label, err)
	}
	return o, nil
}

func ref(p model.Pod) model.PodRef {
	return model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// sources returns the networks in order: the node's, then those that the pod requests.
func (w *resolving) sources(ctx context.Context) ([]source, error) {
	all, err := w.defaultNetworks(ctx)
	if err != nil || w.pod == nil || w.byMultus {
		return all, err
	}
	if text := w.pod.Annotations[DefaultKey]; text != "" {
		if all[0], err = w.first(ctx, text); err != nil {
			return nil, err
		}
	}
	list, warnings, err := ParseSelections(NetworksKey, w.pod.Annotations[NetworksKey], w.pod.Namespace)
	if err != nil {
		return nil, err
	}
	w.warnings = append(w.warnings, warnings...)
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

// defaultNetworks returns the networks that the node's configuration adds to the pod.
func (w *resolving) defaultNetworks(ctx context.Context) ([]source, error) {
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

// DefaultNetworks returns the networks that the node's configuration adds to every pod, for calls without a pod.
func (r *Resolver) DefaultNetworks(ctx context.Context, call cni.Call) ([]Attachment, error) {
	s, err := ParseSettings(call, r.Root)
	if err != nil {
		return nil, err
	}
	w := &resolving{r: r, call: call, s: s}
	sources, err := w.defaultNetworks(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Attachment, 0, len(sources))
	for i, src := range sources {
		a, err := r.attachment(call, s, i, src)
		if err != nil {
			return nil, w.locate(err, i, src)
		}
		all = append(all, a)
	}
	return all, nil
}
