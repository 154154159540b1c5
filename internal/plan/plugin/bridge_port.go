// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/weft-net/weft/internal/state"

// port is the container's end as the bridge's port.
func (c bridgeConf) port(ends *pair) {
	ends.host.Master = c.Name
	if c.HairpinMode || c.PortIsolation {
		ends.host.Port = &state.PortAttrs{}
		if c.HairpinMode {
			ends.host.Port.Hairpin = state.On()
		}
		if c.PortIsolation {
			ends.host.Port.Isolated = state.On()
		}
	}
	ends.host.Vlans = c.portVlans()
	if c.DisableContainerInterface {
		ends.pod.Up = nil
	}
}

// podAddrs are the container's addresses and routes.
func (c bridgeConf) podAddrs(f *state.Fragment, ends pair, a addressed) {
	if c.IsGateway || a.v6 || a.late {
		a.ipv6(f, ends, false)
	} else {
		// There may be a wire behind the bridge, with routers and DHCPv6 servers: the kernel's link-local address asks them.
		f.Host.Sysctls = append(f.Host.Sysctls, quiet(ends.host.Name))
	}
	for _, ip := range a.ips {
		f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: ends.pod.Name, Prefix: ip.Address, NoDAD: ip.Address.Addr().Is6()})
	}
	f.Pod.Routes = a.podRoutes(ends.pod.Name)
	a.keepAddrs(f, ends.pod.Name)
	if c.EnableDAD {
		detect(f, ends.pod.Name, a)
	}
}

// detect has the kernel look whether somebody else on the wire has one of the container's IPv6 addresses, and waits for
// the answer.
func detect(f *state.Fragment, link string, a addressed) {
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
