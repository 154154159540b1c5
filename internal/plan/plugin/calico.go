// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"iter"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// CalicoType is the plugin type of Calico's data path.
const CalicoType = "calico"

// Calico connects a pod to the node by a routed veth pair: single addresses, no subnet, no bridge, the same gateway for
// all pods. Permanent neighbor entries exist on both ends, so neither ARP nor neighbor discovery is needed.
type Calico struct{}

// Type returns "calico".
func (Calico) Type() string { return CalicoType }

// Capabilities returns the optional interfaces that the plugin implements.
func (p Calico) Capabilities() Capabilities {
	return Capabilities{
		MakesInterface: true,
		Gates:          p.Gates,
		AddressRequest: p.AddressRequest,
		Unmanaged:      p.Unmanaged,
		DSCP:           p.DSCP,
	}
}

// Keys returns the configuration keys, those of Calico's plugin.
func (Calico) Keys() []string { return interfaceKeys(calicoKeys()...) }

// IPAM returns the ipam section.
func (Calico) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode parses and validates the configuration, which must have an ipam section.
func (Calico) Decode(conf model.PluginConf) (any, error) { return readCalico(conf) }

// Observe returns the queries for both interface names, which must be free, and for the MTU unless it is configured.
func (Calico) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readCalico)
	if err != nil {
		return nil, err
	}
	queries := []state.Query{freeName(in.Request), hostEnd(in.Request)}
	if in.secondary() {
		queries = append(queries, tablesQuery())
	}
	for _, a := range (Calico{}).Unmanaged(in) {
		queries = append(queries, nodeAddrQuery(a))
	}
	return append(queries, c.mtuFile()...), checkArgs(in.Request)
}

func hostEnd(r model.Request) state.Query {
	return state.Query{Space: state.Host, Link: CalicoHostName(r)}
}

// checkHostEnd rejects an interface name on the node that another attachment uses. The name is derived from the pod's,
// so the other attachment is an earlier sandbox of the same pod whose DEL is pending. An interface without weft's mark
// belongs to Calico's plugin, which would replace it as well.
func checkHostEnd(in Input) error {
	have := in.Answers[hostEnd(in.Request)]
	if !have.Found || !isMark(have.Link.Alias) {
		return nil
	}
	return model.Errorf(model.CodeTryAgain, "another sandbox of the same pod uses it: DEL that sandbox first",
		"interface %q exists already on the node (%s)", have.Link.Name, have.Link.Alias)
}

// Plan creates the pair.
func (p Calico) Plan(in Input) (Step, error) {
	c, err := decoded(in, readCalico)
	if err != nil {
		return Step{}, err
	}
	if err := cmp.Or(checkFreeName(in), checkHostEnd(in), checkNotNodeAddr(in)); err != nil {
		return Step{}, err
	}
	mtu, err := c.mtu(in)
	if err != nil {
		return Step{}, err
	}
	a, err := in.addresses()
	if err != nil {
		return Step{}, err
	}
	spec, err := c.spec(in.Request)
	if err != nil {
		return Step{}, err
	}
	veth := newPair(in.Request, mtu, spec.mac)
	veth.rename(CalicoHostName(in.Request), routedMAC())
	veth.host.ReplaceUnmarked = true
	if c.Queues > 1 {
		veth.host.Queues, veth.pod.Queues = c.Queues, c.Queues
	}
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	f.Host.Links, f.Pod.Links = []state.Link{veth.host}, []state.Link{veth.pod}
	hostVethSysctls(&f, veth.host.Name, a, c)
	a.ipv6(&f, veth, true)
	calicoGateways(&f, veth, a, in.secondary())
	for _, ip := range a.ips {
		calicoAddress(&f, veth, ip.Address.Addr())
	}
	if in.secondary() {
		secondaryRoutes(&f, in, veth, a)
	} else {
		calicoRoutes(&f, veth, a, c)
	}
	if err := spec.apply(&f, in, veth, a); err != nil {
		return Step{}, err
	}
	result := model.Result{Interfaces: veth.interfaces(in.Request), DNS: in.IPAM.DNS}
	for _, r := range a.routes {
		result.Routes = append(result.Routes, model.Route{Dst: r.Dst})
	}
	result.Interfaces[1].MTU = mtu
	one := 1
	for _, ip := range a.ips {
		result.IPs = append(result.IPs, model.IP{Interface: &one, Address: full(ip.Address.Addr())})
	}
	if err := in.overrideDNS(&result); err != nil {
		return Step{}, err
	}
	return c.withHostTap(Step{Fragment: f, Result: result}, in, veth, a)
}

// apply adds the anti-spoofing tables and what the annotations configure: QoS limits and floating IPs.
func (w calicoSpec) apply(f *state.Fragment, in Input, veth pair, a addressed) error {
	from := sourceOf(veth, a)
	from.extra = w.sources
	f.Host.Tables = from.tables(in.Request.Key())
	w.qos.limits(f, in, veth)
	return floating(f, in, a, w.floating)
}

// rename sets the name and MAC address of the node's end.
func (p *pair) rename(name string, mac state.MAC) {
	p.host.Name, p.host.MAC, p.pod.Peer.Name = name, mac, name
}

// hostVethSysctls adds the sysctls that Calico sets on the node's end, and whether the pod forwards. rp_filter is left
// alone: weft_source (calico_source.go) drops spoofed sources instead of strict reverse path filtering.
func hostVethSysctls(f *state.Fragment, host string, a addressed, c calicoConf) {
	f.Host.Sysctls = forwarding(a.v4, a.v6)
	v4, v6 := "net/ipv4/conf/"+host+"/", "net/ipv6/conf/"+host+"/"
	set := func(name, value string) {
		f.Host.Sysctls = append(f.Host.Sysctls, state.Sysctl{Name: name, Value: value})
	}
	forward := "0"
	if c.Container.Forwarding {
		forward = "1"
	}
	if a.v4 {
		set(v4+"forwarding", "1")
		set(v4+"proxy_arp", "1")
		set("net/ipv4/neigh/"+host+"/proxy_delay", "0")
		set(v4+"route_localnet", "1")
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: "net/ipv4/ip_forward", Value: forward})
	}
	if a.v6 {
		set(v6+"forwarding", "1")
		set(v6+"proxy_ndp", "1")
		set(v6+"accept_dad", "0")
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: "net/ipv6/conf/all/forwarding", Value: forward})
	}
	f.Host.Sysctls = append(f.Host.Sysctls, state.Sysctl{Name: v6 + "accept_ra", Value: "0", IfPresent: true})
}

// routedGateway4 returns the gateway address of every routed pod; no interface has it.
func routedGateway4() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 1, 1}) }

// calicoGateways adds the neighbor entries of the pod's gateways: the IPv4 address that no interface has, and the
// link-local address of the node's end. The first interface has a route to the IPv4 gateway; the routes of the others
// are on-link.
func calicoGateways(f *state.Fragment, veth pair, a addressed, secondary bool) {
	pod, mac := veth.pod.Name, veth.host.MAC
	if a.v4 {
		f.Pod.Neighs = append(f.Pod.Neighs, state.Neigh{Link: pod, IP: routedGateway4(), MAC: mac})
		if !secondary {
			f.Pod.Routes = append(f.Pod.Routes, state.Route{Dst: full(routedGateway4()), Link: pod})
		}
	}
	if a.v6 {
		f.Pod.Neighs = append(f.Pod.Neighs, state.Neigh{Link: pod, IP: linkLocal(pod, mac).Prefix.Addr(), MAC: mac})
	}
}

// calicoAddress adds an address to the pod, and the node's route and neighbor entry for it.
func calicoAddress(f *state.Fragment, veth pair, addr netip.Addr) {
	v6 := addr.Is6()
	f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: veth.pod.Name, Prefix: full(addr), NoDAD: v6, NoPrefixRoute: v6})
	f.Host.Routes = append(f.Host.Routes, state.Route{Dst: full(addr), Link: veth.host.Name})
	f.Host.Neighs = append(f.Host.Neighs, state.Neigh{Link: veth.host.Name, IP: addr, MAC: veth.pod.MAC})
}

// calicoRoutes adds the pod's routes: default routes, or those that IPAM returned. The gateway is always the pod's own,
// whatever the gateway of IPAM's route is.
func calicoRoutes(f *state.Fragment, veth pair, a addressed, c calicoConf) {
	gw4, gw6 := routedGateway4(), linkLocal(veth.pod.Name, veth.host.MAC).Prefix.Addr()
	add := func(dst netip.Prefix) {
		gw := gw4
		if dst.Addr().Is6() {
			gw = gw6
		}
		f.Pod.Routes = append(f.Pod.Routes, state.Route{Dst: dst, Gw: gw, Link: veth.pod.Name})
	}
	everywhere := len(a.routes) == 0 || c.DefaultRoutes
	if everywhere && a.v4 {
		add(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	}
	if everywhere && a.v6 {
		add(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	for dst := range a.destinations() {
		if !everywhere || dst.Bits() > 0 {
			add(dst)
		}
	}
}

// destinations returns the distinct destinations of IPAM's routes whose family the pod has an address of.
func (a *addressed) destinations() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		seen := map[netip.Prefix]bool{}
		for _, r := range a.routes {
			dst := r.Dst.Masked()
			usable := dst.Addr().Is4() && a.v4 || dst.Addr().Is6() && a.v6
			if usable && !seen[dst] && !yield(dst) {
				return
			}
			seen[dst] = true
		}
	}
}
