// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// standaloneLink is a container's interface without a peer on the node: macvlan, ipvlan, dummy.
type standaloneLink struct {
	link state.Link
	// announce enables duplicate address detection and the announcement of the addresses.
	announce bool
	// noCarrier is set if the link has no carrier, so that the plan does not wait for replies.
	noCarrier bool
}

// step plans the interface with its addresses. Without addresses it provides layer 2 only.
func (i standaloneLink) step(in Input, a addressed, dns model.DNS) (Step, error) {
	l := i.link
	l.Name, l.Alias, l.Up = in.Request.IfName, Mark(in.Request.Key()), state.On()
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	f.Pod.Links = []state.Link{l}
	var addrs []netip.Addr
	for _, ip := range a.ips {
		addr := ip.Address.Addr()
		f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: l.Name, Prefix: ip.Address, NoDAD: addr.Is6() && !i.announce})
		addrs = append(addrs, addr)
	}
	f.Pod.Routes = a.podRoutes(l.Name)
	a.keepAddrs(&f, l.Name)
	if i.announce && !i.noCarrier && a.v6 {
		f.Effects = append(f.Effects, state.Effect{Kind: state.WaitDAD, Space: state.Pod, Link: l.Name})
	}
	if i.announce && a.known() && in.IPAMTiming == IPAMFirst {
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

// notify enables gratuitous ARP and neighbor advertisements whenever the link is set up or its MAC address changes.
func notify(f *state.Fragment, link string, v6 bool) {
	f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + link + "/arp_notify", Value: "1"})
	if v6 {
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/" + link + "/ndisc_notify", Value: "1", IfPresent: true,
		})
	}
}

// wantIPAM rejects a configuration without an IPAM plugin.
func wantIPAM(conf model.PluginConf, named bool) error {
	if named {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, `add "ipam": {"type": …}`, "plugin %s: ipam.type is missing", conf.Type)
}

// optionalAddresses returns the addresses of the ipam section, none if the configuration has no such section.
func (in Input) optionalAddresses(ipam bool) (addressed, model.DNS, error) {
	if !ipam {
		return addressed{}, model.DNS{}, nil
	}
	a, err := in.addresses()
	if err != nil {
		return a, model.DNS{}, err
	}
	return a, in.IPAM.DNS, nil
}

// macSources are the keys for the MAC address of an interface, in order of precedence: the last one wins.
type macSources struct {
	MAC           string `json:"mac"`
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`
}

// mac returns the configured address, zero if none is.
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
