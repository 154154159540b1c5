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

// poolsType is the IPAM type that chooses among the cluster's pools.
const poolsType = `"calico-ipam"`

// say tells networks whose plugins want to know what the pod and its namespace say. What annotations say of an
// interface is meant for the pod's first one.
func (w *resolving) say(ctx context.Context, all []Attachment) error {
	if w.pod == nil {
		return nil
	}
	var ns *model.Namespace
	for i := range all {
		words, pools := asks(all[i].Network)
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
		}
	}
	return nil
}

// asks tells whether a network's plugins read annotations, and whether they choose among pools.
func asks(n model.Network) (words, pools bool) {
	for _, p := range n.Plugins {
		words = words || p.Type == plugin.CalicoType
		pools = pools || bytes.Contains(p.Raw, []byte(poolsType))
	}
	return words, pools
}

// limits tells whether a network has a plugin for what Kubernetes' own annotations say of bandwidth.
func limits(n model.Network) bool {
	return slices.ContainsFunc(n.Plugins, func(p model.PluginConf) bool { return p.Type == "bandwidth" })
}

// namespace is the pod's, with labels that are not nil once it is known.
func (w *resolving) namespace(ctx context.Context) (model.Namespace, error) {
	from, ok := w.r.Cluster.(Namespaces)
	if !ok {
		return model.Namespace{}, nil
	}
	ns, err := from.Namespace(ctx, w.pod.Namespace)
	switch {
	case errors.Is(err, store.ErrNotFound): // in a directory of manifests hardly anybody writes one down
		ns = model.Namespace{Name: w.pod.Namespace}
	case err != nil:
		return ns, model.Faultf(model.CodeTryAgain, "", "namespace %s is not known yet: %w", w.pod.Namespace, err)
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	return ns, nil
}
