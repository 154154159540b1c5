// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// handleHostLocked passes an object about host endpoints to the index. One that cannot be read leaves its last version.
func (cf *calicoFeed) handleHostLocked(o store.Object, name store.Key, is bool) (err error) {
	facts := cf.desired.index.Calico()
	switch name.Kind {
	case "HostEndpoint":
		if !is {
			facts.DelHostEndpoint(name.Name)
			break
		}
		var h *model.HostEndpoint
		if h, err = calico.HostEndpoint(o); h != nil {
			facts.SetHostEndpoint(*h)
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
