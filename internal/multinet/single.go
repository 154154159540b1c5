// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// SinglePlugin returns the network of a call in which a runtime, or another plugin, has executed one of the agent's
// plugins directly: one of a list of others, or the IPAM plugin of another vendor's plugin. The pod's annotations are
// not read: the caller handles them.
func (r *Resolver) SinglePlugin(ctx context.Context, call cni.Call, name string) (Attachment, error) {
	n, prev, err := cni.ParsePlugin(call.Conf)
	if err != nil && (call.Command != cni.Del || len(n.Plugins) == 0) {
		return Attachment{}, err
	}
	a := Attachment{Label: n.Name, Network: n, Request: call.Request, Prev: prev}
	if name == plugin.CalicoType {
		return a, r.pod(ctx, call, &a)
	}
	conf := &a.Network.Plugins[0]
	var c struct {
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	if err := cni.Decode("plugin "+conf.Type, conf.Raw, &c); err != nil {
		return a, err
	}
	if c.IPAM.Type != name {
		return a, model.Errorf(model.CodeInvalidConf, "an IPAM plugin is executed by another one, whose \"ipam\" names it",
			"plugin %s: ipam.type is %q", name, c.IPAM.Type)
	}
	conf.Type = plugin.IPAMOnlyType
	a.Network.Name = call.Request.Network // its own: see plugin.IPAMNetwork
	return a, r.pod(ctx, call, &a)
}

// pod adds the pod's object, for an ADD.
func (r *Resolver) pod(ctx context.Context, call cni.Call, a *Attachment) error {
	if call.Command != cni.Add {
		return nil
	}
	w := &resolving{r: r, call: call}
	if err := cni.Decode("network "+call.Request.Network, call.Conf, &w.s); err != nil {
		return err
	}
	var err error
	if w.pod, err = w.find(ctx); err != nil || w.pod == nil {
		return err
	}
	o := &model.Origin{Pod: ref(*w.pod), Network: a.Label, Primary: true, SinglePlugin: true}
	if err := w.readVM(o); err != nil {
		return err
	}
	a.Request.Origin = o
	all := []Attachment{*a}
	err = w.addPodSettings(ctx, all)
	*a = all[0]
	return err
}

// ByMultus reports whether Multus itself executes weft-cni for its clusterNetwork. It passes an argument of its own before
// the runtime's: containerd and CRI-O say IgnoreUnknown=1 (multus-cni v4.3.0, pkg/types/conf.go, createRuntimeConf). A DEL has
// the configuration as Multus' cache has it, without delegates.
func ByMultus(r model.Request) bool {
	return slices.Contains(r.Args, [2]string{"IgnoreUnknown", "true"})
}
