// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// alone is a container's interface that has no end on the node: it is on a wire by itself, or on none.
type alone struct {
	link state.Link
	// asks tells that others on the wire are asked whether they have the addresses, and told that the container has.
	asks bool
	// deaf tells that nothing can be heard on the wire at present, so that nobody is waited for.
	deaf bool
}

// step plans the interface with its addresses. Without addresses it only joins the wire.
func (i alone) step(in Input, a addressed, dns model.DNS) (Step, error) {
	l := i.link
	l.Name, l.Alias, l.Up = in.Request.IfName, Mark(in.Request.Key()), state.On()
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	f.Pod.Links = []state.Link{l}
	var addrs []netip.Addr
	for _, ip := range a.ips {
		addr := ip.Address.Addr()
		f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: l.Name, Prefix: ip.Address, NoDAD: addr.Is6() && !i.asks})
		addrs = append(addrs, addr)
	}
	f.Pod.Routes = a.podRoutes(l.Name)
	a.keepAddrs(&f, l.Name)
	if i.asks && !i.deaf && a.v6 {
		f.Effects = append(f.Effects, state.Effect{Kind: state.WaitDAD, Space: state.Pod, Link: l.Name})
	}
	if i.asks && a.known() && in.Late == Early {
		f.Effects = append(f.Effects, state.Effect{Kind: state.Announce, Space: state.Pod, Link: l.Name, Addrs: addrs})
	}
	iface := model.Interface{Name: l.Name, Sandbox: in.Request.Netns}
	if !l.MAC.IsZero() {
		iface.MAC = l.MAC.String()
	}
	result := model.Result{Interfaces: []model.Interface{iface}, Routes: a.routes, DNS: dns}
	zero := 0
	for _, ip := range a.ips {
		ip.Interface = &zero
		result.IPs = append(result.IPs, ip)
	}
	if err := in.overrideDNS(&result); err != nil {
		return Step{}, err
	}
	return Step{Fragment: f, Result: result}, nil
}

// notify has the kernel tell the neighbors whenever the link comes up or changes its MAC.
func notify(f *state.Fragment, link string, v6 bool) {
	f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + link + "/arp_notify", Value: "1"})
	if v6 {
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/" + link + "/ndisc_notify", Value: "1", IfPresent: true,
		})
	}
}

// wantIPAM refuses a configuration that names no IPAM plugin.
func wantIPAM(conf model.PluginConf, named bool) error {
	if named {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, `add "ipam": {"type": …}`, "plugin %s: ipam.type is missing", conf.Type)
}

// given are the addresses that the configuration's IPAM section got, none where it has no such section.
func (in Input) given(ipam bool) (addressed, model.DNS, error) {
	if !ipam {
		return addressed{}, model.DNS{}, nil
	}
	a, err := in.addresses()
	if err != nil {
		return a, model.DNS{}, err
	}
	return a, in.IPAM.DNS, nil
}

// macSources are where the MAC of an interface can stand: the last one that is set counts.
type macSources struct {
	MAC           string `json:"mac"`
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`
}

// mac is the wanted address, zero when none is.
func (s macSources) mac(conf model.PluginConf, r model.Request) (state.MAC, error) {
	field, value := "mac", s.MAC
	if v, ok := r.Arg("MAC"); ok && v != "" {
		field, value = "CNI_ARGS MAC", v
	}
	if s.RuntimeConfig.MAC != "" {
		field, value = "runtimeConfig.mac", s.RuntimeConfig.MAC
	}
	if value == "" {
		return state.MAC{}, nil
	}
	return readMAC(conf, field, value)
}
