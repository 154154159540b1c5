// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// poolsType is the IPAM type that selects among the cluster's pools.
const poolsType = `"calico-ipam"`

// addPodSettings adds the pod's annotations and its namespace's labels to the networks whose plugins read them.
// Annotations about the interface apply to the pod's first one.
func (w *resolving) addPodSettings(ctx context.Context, all []Attachment) error {
	if w.pod == nil {
		return nil
	}
	var ns *model.Namespace
	for i := range all {
		words, pools := reads(all[i].Network)
		words = words && i == 0
		if !pools && !words {
			continue
		}
		if ns == nil {
			found, err := w.namespace(ctx)
			if err != nil {
				return err
			}
			ns = &found
		}
		all[i].NamespaceLabels = ns.Labels
		if o := all[i].Request.Origin; o != nil && words {
			o.Annotations = plugin.CalicoAnnotations(w.pod.Annotations, ns.Annotations)
			o.Annotations = slices.DeleteFunc(o.Annotations, func(kv [2]string) bool {
				return plugin.IsKubeRate(kv[0]) && limits(all[i].Network)
			})
			if err := w.addGuestMAC(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// reads reports whether a network's plugins read annotations, and whether they select among pools.
func reads(n model.Network) (words, pools bool) {
	for _, p := range n.Plugins {
		words = words || p.Type == plugin.CalicoType
		pools = pools || bytes.Contains(p.Raw, []byte(poolsType))
	}
	return words, pools
}

// limits reports whether a network has a plugin for Kubernetes' own bandwidth annotations.
func limits(n model.Network) bool {
	return slices.ContainsFunc(n.Plugins, func(p model.PluginConf) bool { return p.Type == "bandwidth" })
}

// namespace returns the pod's namespace; its labels are not nil once it is known.
func (w *resolving) namespace(ctx context.Context) (model.Namespace, error) {
	from, ok := w.r.Cluster.(Namespaces)
	if !ok {
		return model.Namespace{}, nil
	}
	ns, err := from.Namespace(ctx, w.pod.Namespace)
	switch {
	case errors.Is(err, store.ErrNotFound): // a directory of manifests usually has none
		ns = model.Namespace{Name: w.pod.Namespace}
	case err != nil:
		return ns, model.Errorf(model.CodeTryAgain, "", "namespace %s is not known yet: %w", w.pod.Namespace, err)
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	return ns, nil
}
