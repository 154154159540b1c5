// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/weft-net/weft/internal/state"

// port configures the node's end of the pair as a port of the bridge.
func (c bridgeConf) port(veth *pair) {
	veth.host.Master = c.Name
	if c.HairpinMode || c.PortIsolation {
		veth.host.Port = &state.PortAttrs{}
		if c.HairpinMode {
			veth.host.Port.Hairpin = state.On()
		}
		if c.PortIsolation {
			veth.host.Port.Isolated = state.On()
		}
	}
	veth.host.VLANs = c.portVLANs()
	if c.DisableContainerInterface {
		veth.pod.Up = nil
	}
}

// podAddrs adds the container's addresses and routes.
func (c bridgeConf) podAddrs(f *state.Fragment, veth pair, a addressed) {
	if c.IsGateway || a.v6 || a.late {
		a.ipv6(f, veth, false)
	} else {
		// The bridge may be connected to a physical network with routers and DHCPv6 servers: keep the kernel's link-local address.
		f.Host.Sysctls = append(f.Host.Sysctls, noAddrGen(veth.host.Name))
	}
	for _, ip := range a.ips {
		f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: veth.pod.Name, Prefix: ip.Address, NoDAD: ip.Address.Addr().Is6()})
	}
	f.Pod.Routes = a.podRoutes(veth.pod.Name)
	a.keepAddrs(f, veth.pod.Name)
	if c.EnableDAD {
		enableDAD(f, veth.pod.Name, a)
	}
	c.probe(f, veth.pod.Name)
}

// enableDAD enables duplicate address detection for the container's IPv6 addresses and waits for its result.
func enableDAD(f *state.Fragment, link string, a addressed) {
	for i := range f.Pod.Addrs {
		f.Pod.Addrs[i].NoDAD = false
	}
	if !a.v6 && !a.late {
		return
	}
	for _, name := range []string{"enhanced_dad", "accept_dad"} {
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/" + link + "/" + name, Value: "1", IfPresent: true,
		})
	}
	if a.v6 {
		f.Effects = append(f.Effects, state.Effect{Kind: state.WaitDAD, Space: state.Pod, Link: link})
	}
}
