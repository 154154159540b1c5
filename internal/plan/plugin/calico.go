// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"iter"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// CalicoType is the type of the routed design.
const CalicoType = "calico"

// Calico joins a pod to the node by a routed pair: single addresses, no subnet, no bridge, the same gateway for all.
// The pod knows its gateway's hardware address from the start, and the node the pod's, so nothing is ever asked on this
// wire.
type Calico struct{}

// Type is "calico".
func (Calico) Type() string { return CalicoType }

// Capabilities says what it can beside planning.
func (p Calico) Capabilities() Capabilities {
	return Capabilities{MakesInterface: true, Gates: p.Gates, Wishes: p.Wishes, Brought: p.Brought, DSCP: p.DSCP}
}

// Keys are the options of Calico's plugin.
func (Calico) Keys() []string { return interfaceKeys(calicoKeys()...) }

// IPAM is the ipam section.
func (Calico) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode wants an ipam section.
func (Calico) Decode(conf model.PluginConf) (any, error) { return readCalico(conf) }

// Observe asks whether both names are free, and for the MTU where the configuration leaves it open.
func (Calico) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readCalico)
	if err != nil {
		return nil, err
	}
	queries := []state.Query{freeName(in.Request), hostEnd(in.Request)}
	if in.further() {
		queries = append(queries, tablesQuery())
	}
	for _, a := range (Calico{}).Brought(in) {
		queries = append(queries, nodesOwn(a))
	}
	return append(queries, c.mtuFile()...), checkArgs(in.Request)
}

func hostEnd(r model.Request) state.Query {
	return state.Query{Space: state.Host, Link: CalicoHostName(r)}
}

// checkHostEnd refuses to take the name from another container: it bears the pod's name, so that is an earlier sandbox
// of the same pod, and its DEL is still to come. What bears no mark of weft's is Calico's, which takes it away as well.
func checkHostEnd(in Input) error {
	have := in.Answers[hostEnd(in.Request)]
	if !have.Found || !isMark(have.Link.Alias) {
		return nil
	}
	return model.Faultf(model.CodeTryAgain, "it is another container's of the same pod: DEL that first",
		"interface %q exists already on the node (%s)", have.Link.Name, have.Link.Alias)
}

// Plan makes the pair.
func (p Calico) Plan(in Input) (Step, error) {
	c, err := decoded(in, readCalico)
	if err != nil {
		return Step{}, err
	}
	if err := cmp.Or(checkFreeName(in), checkHostEnd(in), checkNotNodes(in)); err != nil {
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
	words, err := c.words(in.Request)
	if err != nil {
		return Step{}, err
	}
	ends := newPair(in.Request, mtu, words.mac)
	ends.rename(CalicoHostName(in.Request), routedMAC())
	ends.host.Replaces = true
	if c.Queues > 1 {
		ends.host.Queues, ends.pod.Queues = c.Queues, c.Queues
	}
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	f.Host.Links, f.Pod.Links = []state.Link{ends.host}, []state.Link{ends.pod}
	calicoSettings(&f, ends.host.Name, a, c)
	a.ipv6(&f, ends, true)
	calicoGateways(&f, ends, a, in.further())
	for _, ip := range a.ips {
		calicoAddress(&f, ends, ip.Address.Addr())
	}
	if in.further() {
		furtherRoutes(&f, in, ends, a)
	} else {
		calicoRoutes(&f, ends, a, c)
	}
	if err := words.apply(&f, in, ends, a); err != nil {
		return Step{}, err
	}
	result := model.Result{Interfaces: ends.interfaces(in.Request), DNS: in.IPAM.DNS}
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
	return c.placed(Step{Fragment: f, Result: result}, in, ends, a)
}

// apply adds who may speak over the link, and what annotations limit, mark and lead to the pod.
func (w calicoWords) apply(f *state.Fragment, in Input, ends pair, a addressed) error {
	from := sourceOf(ends, a)
	from.more = w.sources
	f.Host.Tables = from.tables(in.Request.Key())
	w.qos.limits(f, in, ends)
	return floating(f, in, a, w.floating)
}

// rename gives the node's end another name and hardware address.
func (p *pair) rename(name string, mac state.MAC) {
	p.host.Name, p.host.MAC, p.pod.Peer.Name = name, mac, name
}

// calicoSettings are those of the node's end, as Calico has them, and whether the pod forwards.
func calicoSettings(f *state.Fragment, host string, a addressed, c calicoConf) {
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

// routedGateway4 is the gateway of every routed pod; nobody has the address.
func routedGateway4() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 1, 1}) }

// calicoGateways tells the pod where its gateways are: the address that nobody has, and the link-local one of the
// node's end. The way to the former is the first interface's; the others know that it is on their link.
func calicoGateways(f *state.Fragment, ends pair, a addressed, further bool) {
	pod, mac := ends.pod.Name, ends.host.MAC
	if a.v4 {
		f.Pod.Neighs = append(f.Pod.Neighs, state.Neigh{Link: pod, IP: routedGateway4(), MAC: mac})
		if !further {
			f.Pod.Routes = append(f.Pod.Routes, state.Route{Dst: full(routedGateway4()), Link: pod})
		}
	}
	if a.v6 {
		f.Pod.Neighs = append(f.Pod.Neighs, state.Neigh{Link: pod, IP: linkLocal(pod, mac).Prefix.Addr(), MAC: mac})
	}
}

// calicoAddress gives the pod one address and the node its way there.
func calicoAddress(f *state.Fragment, ends pair, addr netip.Addr) {
	v6 := addr.Is6()
	f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: ends.pod.Name, Prefix: full(addr), NoDAD: v6, NoPrefixRoute: v6})
	f.Host.Routes = append(f.Host.Routes, state.Route{Dst: full(addr), Link: ends.host.Name})
	f.Host.Neighs = append(f.Host.Neighs, state.Neigh{Link: ends.host.Name, IP: addr, MAC: ends.pod.MAC})
}

// calicoRoutes lead out of the pod: to everywhere, unless IPAM says whereto. All go to the one gateway, whatever IPAM
// says of theirs.
func calicoRoutes(f *state.Fragment, ends pair, a addressed, c calicoConf) {
	gw4, gw6 := routedGateway4(), linkLocal(ends.pod.Name, ends.host.MAC).Prefix.Addr()
	add := func(dst netip.Prefix) {
		gw := gw4
		if dst.Addr().Is6() {
			gw = gw6
		}
		f.Pod.Routes = append(f.Pod.Routes, state.Route{Dst: dst, Gw: gw, Link: ends.pod.Name})
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

// destinations are those of IPAM's routes that an address of their family can use, each one once.
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
