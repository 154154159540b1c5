// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
)

// hostFacts are the facts about host endpoints.
type hostFacts struct {
	all        map[string]model.HostEndpoint
	felix      map[string]model.FelixConfiguration
	controller model.HostEndpointController
	interfaces []hostendpoint.Interface
}

// hostStep changes what host endpoints depend on.
func (f *facts) hostStep(t *rapid.T, x *Index, name string) {
	gone := rapid.IntRange(0, 3).Draw(t, "gone") == 0
	switch rapid.IntRange(0, 5).Draw(t, "host") {
	case 0, 1, 2:
		h := model.HostEndpoint{
			Name: name, Node: rapid.SampledFrom([]string{"n1", "n1", "n2"}).Draw(t, "node"), Labels: drawLabels(t),
			Interface: rapid.SampledFrom([]string{"eth0", "*", ""}).Draw(t, "interface"), Addrs: drawAddrs(t),
			Allows: rapid.Bool().Draw(t, "allows"), Automatic: rapid.Bool().Draw(t, "automatic"),
			Ports: []model.PodPort{{Name: "web", Protocol: model.TCP, Number: 80}},
		}
		if f.hosts.all[name] = h; gone {
			delete(f.hosts.all, name)
			x.Calico().DelHostEndpoint(name)
			return
		}
		x.Calico().SetHostEndpoint(h)
	case 3:
		c := model.FelixConfiguration{
			Name:           rapid.SampledFrom([]string{"default", "node.n1"}).Draw(t, "felix"),
			EndpointToHost: rapid.SampledFrom([]string{"", "Drop", "Accept"}).Draw(t, "endpoint to host"),
		}
		if rapid.Bool().Draw(t, "ports") {
			c.Inbound = &[]model.FailsafePort{{Protocol: model.TCP, Port: 80}}
		}
		if f.hosts.felix[c.Name] = c; gone {
			delete(f.hosts.felix, c.Name)
			x.Calico().DelFelixConfiguration(c.Name)
			return
		}
		x.Calico().SetFelixConfiguration(c)
	case 4:
		f.hosts.controller = model.HostEndpointController{Enabled: !gone, Default: rapid.Bool().Draw(t, "default")}
		x.Calico().SetHostEndpointController(f.hosts.controller)
	case 5:
		f.hosts.interfaces = []hostendpoint.Interface{{Name: "eth0", Addrs: drawAddrs(t)}, {Name: "eth1", Addrs: drawAddrs(t)}}
		x.Calico().SetInterfaces(f.hosts.interfaces)
	}
}

// setHosts sets in a fresh index what host endpoints depend on.
func (f *facts) setHosts(x *Index) {
	for _, h := range f.hosts.all {
		x.Calico().SetHostEndpoint(h)
	}
	for _, c := range f.hosts.felix {
		x.Calico().SetFelixConfiguration(c)
	}
	x.Calico().SetHostEndpointController(f.hosts.controller)
	x.Calico().SetInterfaces(f.hosts.interfaces)
}

// endHosts takes it back.
func (f *facts) endHosts(x *Index) {
	for name := range f.hosts.all {
		x.Calico().DelHostEndpoint(name)
	}
	for name := range f.hosts.felix {
		x.Calico().DelFelixConfiguration(name)
	}
	x.Calico().SetHostEndpointController(model.HostEndpointController{})
}

func drawScope(t *rapid.T) model.HostScope {
	return rapid.SampledFrom([]model.HostScope{
		{}, {}, {ApplyOnForward: true}, {ApplyOnForward: true, PreDNAT: true}, {ApplyOnForward: true, DoNotTrack: true},
	}).Draw(t, "scope")
}
