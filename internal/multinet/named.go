// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// named finds a network that the node's configuration names.
func (w *resolving) named(ctx context.Context, name string) (source, error) {
	if strings.Contains(name, "/") {
		raw, err := pathFile(w.s.seen(name))
		return source{raw: raw, label: labelOf(raw)}, err
	}
	if w.r.Cluster != nil {
		src, err := w.defined(ctx, &Selection{Name: name, Namespace: w.s.MultusNamespace})
		if err == nil || !errors.Is(err, store.ErrNotFound) {
			src.selection = nil
			return src, err
		}
	}
	raw, err := namedFile(w.s.seen(w.s.ConfDir), name)
	return source{raw: raw, label: labelOf(raw)}, err
}

func labelOf(raw json.RawMessage) string {
	var head struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(raw, &head) // the full decoder reports errors
	return head.Name
}

// first returns the network that the pod requests as its first one.
func (w *resolving) first(ctx context.Context, text string) (source, error) {
	list, warnings, err := ParseSelections(DefaultKey, text, w.s.MultusNamespace)
	if err != nil {
		return source{}, err
	}
	w.warnings = append(w.warnings, warnings...)
	if len(list) != 1 {
		return source{}, model.Errorf(model.CodeInvalidConf, "name one network", "annotation %s: %d networks, want one: %q",
			DefaultKey, len(list), text)
	}
	s := &list[0]
	if s.Interface != "" && s.Interface != w.call.Request.IfName {
		return source{}, model.Errorf(model.CodeInvalidConf, "leave it out",
			"annotation %s: interface %q: the runtime calls the pod's first interface %q",
			DefaultKey, s.Interface, w.call.Request.IfName)
	}
	src, err := w.defined(ctx, s)
	if err != nil {
		return src, within(err, "annotation "+DefaultKey)
	}
	return src, nil
}

// selected returns a network that the pod requests.
func (w *resolving) selected(ctx context.Context, s *Selection) (source, error) {
	if !w.s.mayUse(w.pod.Namespace, s.Namespace) {
		return source{}, model.Errorf(model.CodeInvalidConf,
			"use a network of the pod's own namespace, or name the other one in globalNamespaces",
			"network %s: the node keeps namespaces apart (namespaceIsolation), and the pod is in namespace %s", s.Network(),
			w.pod.Namespace)
	}
	return w.defined(ctx, s)
}

// defined returns the network of a NetworkAttachmentDefinition.
func (w *resolving) defined(ctx context.Context, s *Selection) (source, error) {
	src := source{label: s.Network(), name: s.Name, podRequest: podRequest{selection: s}}
	n, err := w.r.Cluster.Network(ctx, s.Namespace, s.Name)
	if errors.Is(err, store.ErrNotFound) {
		return src, &model.Error{
			Code: model.CodeInvalidConf, Hint: "create one with `kubectl apply`, or correct the name", Err: store.ErrNotFound,
			Msg: fmt.Sprintf("network %s: there is no NetworkAttachmentDefinition %s in namespace %s", s.Network(), s.Name,
				s.Namespace),
		}
	}
	if err != nil {
		return src, model.Errorf(model.CodeTryAgain, "", "network %s is not known yet: %w", s.Network(), err)
	}
	if src.raw = json.RawMessage(n.Config); strings.TrimSpace(n.Config) == "" {
		if src.raw, err = namedFile(w.s.seen(w.s.ConfDir), s.Name); err != nil {
			return src, within(err, "network "+s.Network()+" has no spec.config")
		}
	} else if w.r.PermitPaths != nil {
		if err := checkPaths(src.raw, w.r.PermitPaths); err != nil {
			return src, within(err, "network "+s.Network())
		}
	}
	if s.DeviceID != "" {
		return src, nil
	}
	return src, w.device(ctx, n, &src.podRequest)
}

// device takes the next device of the resource that a network names.
func (w *resolving) device(ctx context.Context, n model.NetworkAttachment, a *podRequest) error {
	resource := n.Annotations[ResourceKey]
	if resource == "" || w.r.Devices == nil || w.pod == nil {
		return nil
	}
	if w.devices == nil {
		var err error
		if w.devices, err = w.r.Devices.Of(ctx, ref(*w.pod)); err != nil {
			return model.Errorf(model.CodeTryAgain, "", "network %s: devices of resource %s: %w", n, resource, err)
		}
		for name, ids := range w.devices {
			w.devices[name] = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(w.used, id) })
		}
	}
	ids := w.devices[resource]
	if len(ids) == 0 {
		if w.call.Command == cni.Add {
			a.missing = resource
		}
		return nil // as with Multus, a network works without a device where its plugin does
	}
	a.device, a.resource, w.devices[resource] = ids[0], resource, ids[1:]
	return nil
}

// auxiliary returns the chain of plugins in the directory next to the cluster's network that create no interface.
func (w *resolving) auxiliary() (*source, error) {
	name := w.s.AuxiliaryChain
	if name == "" {
		return nil, nil
	}
	if !strings.Contains(w.s.ClusterNetwork, "/") {
		return nil, model.Errorf(model.CodeInvalidConf, "name clusterNetwork by its path",
			"network %s: auxiliaryCNIChainName %q needs a clusterNetwork that is a path, which %q is not",
			w.s.Name, name, w.s.ClusterNetwork)
	}
	plugins, err := chain(filepath.Dir(w.s.seen(w.s.ClusterNetwork)), name)
	if err != nil || len(plugins) == 0 {
		return nil, err
	}
	raw, err := json.Marshal(map[string]any{"name": name, "cniVersion": w.call.Request.CNIVersion, "plugins": plugins})
	return &source{raw: raw, label: name, bare: true}, err
}
