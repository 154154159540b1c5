// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// handleHostLocked passes an object about host endpoints to the index. One that cannot be read leaves its last version.
func (cf *calicoFeed) handleHostLocked(o store.Object, name store.Key, is bool) (err error) {
	facts := cf.desired.index.Calico()
	switch name.Kind {
	case "HostEndpoint":
		delete(cf.desired.hostFaults, name.Name)
		if !is {
			facts.DelHostEndpoint(name.Name)
			break
		}
		var h *model.HostEndpoint
		if h, err = calico.HostEndpoint(o); h != nil {
			facts.SetHostEndpoint(*h)
		}
		if err != nil {
			cf.desired.hostFaults[name.Name] = calico.Reason(o, err)
		}
	case "FelixConfiguration":
		if !is {
			facts.DelFelixConfiguration(name.Name)
			break
		}
		var f *model.FelixConfiguration
		if f, err = calico.FelixConfiguration(o); f != nil {
			facts.SetFelixConfiguration(*f)
		}
		if err == nil {
			err = calico.Ignored(o)
		}
	case "KubeControllersConfiguration":
		if name.Name != "default" { // Calico's controllers read no other
			break
		}
		c := &model.HostEndpointController{}
		if is {
			c, err = calico.HostEndpointController(o)
		}
		if c != nil {
			facts.SetHostEndpointController(*c)
		}
	}
	if facts.HasHosts() {
		cf.desired.wantPeersLocked() // their labels, and addresses of nodes
	}
	return err
}

// hostEndpointsLocked returns the host endpoints of this node, and objects whose node cannot be read, sorted by name.
func (d *desired) hostEndpointsLocked() []policy.HostEndpointView {
	out := d.index.Calico().HostEndpoints()
	for name, fault := range d.hostFaults {
		found := false
		for i := range out {
			if out[i].Name == name {
				out[i].Faults, found = append(out[i].Faults, fault), true
			}
		}
		if !found && !d.index.Calico().HasHostEndpoint(name) {
			out = append(out, policy.HostEndpointView{Name: name, Stages: []policy.HostStageView{}, Faults: []string{fault}})
		}
	}
	slices.SortStableFunc(out, func(a, b policy.HostEndpointView) int { return strings.Compare(a.Name, b.Name) })
	return out
}
