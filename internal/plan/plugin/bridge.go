// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Bridge joins containers of a node to one bridge device.
type Bridge struct {
	// SourceGuard guards every port whose addresses are known, unless the network says otherwise. The reference plugin
	// guards none.
	SourceGuard bool
}

// Type is "bridge".
func (Bridge) Type() string { return "bridge" }

// Capabilities says what it can beside planning.
func (b Bridge) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: b} }

// Keys are the options of the reference plugin.
func (Bridge) Keys() []string {
	return interfaceKeys("bridge", "isGateway", "isDefaultGateway", "forceAddress", "ipMasq", "ipMasqBackend", "mtu",
		"hairpinMode", "promiscMode", "vlan", "vlanTrunk[].minID", "vlanTrunk[].maxID", "vlanTrunk[].id",
		"preserveDefaultVlan", "macspoofchk", "enabledad", "disableContainerInterface", "portIsolation", "guard")
}

// IPAM is the ipam section; a bridge without one only joins the wire.
func (Bridge) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode refuses what contradicts itself.
func (Bridge) Decode(conf model.PluginConf) (any, error) { return readBridge(conf) }

// Observe asks for the bridge with its addresses and whether the interface's name is free. Where no gateway address
// tells nodes apart, the machine's boot id seeds the bridge's MAC.
func (Bridge) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readBridge)
	if err != nil {
		return nil, err
	}
	queries := []state.Query{freeName(in.Request), {Space: state.Host, Link: c.Name}}
	if !c.ipam || !c.IsGateway || in.Late != Early {
		queries = append(queries, bootID())
	}
	if c.vlanGateway() {
		queries = append(queries, state.Query{Space: state.Host, Link: c.gatewayLink()})
	}
	return append(queries, c.masq().queries()...), checkArgs(in.Request)
}

// ReadyQueries asks for what masquerading needs.
func (Bridge) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readBridge)
	if err != nil {
		return nil
	}
	return c.masq().queries()
}

// Ready tells whether masquerading could work.
func (Bridge) Ready(in Input) error {
	c, err := decoded(in, readBridge)
	if err != nil {
		return err
	}
	return c.masq().ready(in)
}

func bootID() state.Query {
	return state.Query{Space: state.Host, Sysctl: "kernel/random/boot_id"}
}

// Plan makes the bridge where there is none, a port for the container, and the gateway's addresses on the bridge.
func (b Bridge) Plan(in Input) (Step, error) {
	c, err := decoded(in, readBridge)
	if err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	mac, err := c.mac(in.Conf, in.Request)
	if err != nil {
		return Step{}, err
	}
	if mac.IsZero() {
		mac = machineMAC(in.Request)
	}
	var a addressed
	var gateways []netip.Prefix
	dns := model.DNS{}
	if c.ipam {
		if a, err = in.addresses(); err != nil {
			return Step{}, err
		}
		dns = in.IPAM.DNS
		gateways = c.gateways(&a)
	}
	br, err := c.device(in, gateways)
	if err != nil {
		return Step{}, err
	}
	quietly := c.IsGateway && mac.IsZero() && in.Late == Early && a.known()
	if mac.IsZero() && in.Late == Early && a.known() {
		mac = portMAC(c.Name, a.ips[0].Address.Addr())
	}
	ends := newPair(in.Request, c.MTU, mac)
	c.port(&ends)
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	f.Host.Links, f.Pod.Links = []state.Link{br, ends.host}, []state.Link{ends.pod}
	if c.vlanGateway() {
		f.Host.Links = append(f.Host.Links, c.vlanDevice(in, gateways)...)
	}
	if f.Host.Addrs, err = c.gatewayAddrs(in, gateways); err != nil {
		return Step{}, err
	}
	c.hostSettings(in, &f, gateways)
	c.podSettings(in, &f, a, quietly)
	c.podAddrs(&f, ends, a)
	f.Host.Tables = c.watched(in.Request, ends, a, b.SourceGuard)
	if err := c.masq().plan(in, &f, a); err != nil {
		return Step{}, err
	}
	result := c.result(in.Request, br, ends, a)
	result.Interfaces = append(result.Interfaces, c.gatewayInterface(f.Host.Links)...)
	result.DNS = dns
	if err := in.overrideDNS(&result); err != nil {
		return Step{}, err
	}
	return Step{Fragment: f, Result: result}, nil
}

// device is the bridge as it should be. One that somebody else made keeps its MAC and MTU and is not marked; it is
// brought up, and promiscuous when that is asked for.
func (c bridgeConf) device(in Input, gateways []netip.Prefix) (state.Link, error) {
	br := state.Link{Name: c.Name, Kind: state.Bridge, Up: state.On(), Shared: true}
	if c.PromiscMode {
		br.Promisc = state.On()
	}
	if c.filtering() {
		br.Bridge = &state.BridgeAttrs{VlanFiltering: state.On()}
	}
	have := in.Answers[state.Query{Space: state.Host, Link: c.Name}]
	switch {
	case !have.Found:
		br.MTU, br.Alias = c.MTU, SharedMark
		if in.Late != Early {
			gateways = nil
		}
		br.MAC = state.SeedMAC(c.bridgeSeed(in, gateways))
	case have.Link.Kind != state.Bridge:
		return br, model.Faultf(model.CodeInvalidConf, "choose another name for the bridge, or remove that link",
			"plugin bridge: bridge %q exists and is not a bridge but %s", c.Name, kindName(have.Link))
	case have.Link.Alias == SharedMark:
		br.MAC, br.Alias = have.Link.MAC, SharedMark
	default:
		br.MAC = have.Link.MAC
	}
	return br, nil
}

func kindName(l state.Link) string {
	if l.Kind == "" {
		return "a device"
	}
	return "a " + string(l.Kind)
}

// bridgeSeed differs between nodes, whose bridges may meet on one wire, and is the same for all the attachments of a
// node, which may make the bridge at the same time.
func (c bridgeConf) bridgeSeed(in Input, gateways []netip.Prefix) string {
	words := []string{"bridge", c.Name}
	for _, gw := range gateways {
		words = append(words, gw.String())
	}
	if len(gateways) == 0 {
		words = append(words, in.Answers[bootID()].Value)
	}
	return strings.Join(words, "/")
}

// hostSettings are the node's sysctls beside those of the port: no router advertisements believed by a bridge that we
// make, and forwarding where the bridge is a gateway.
func (c bridgeConf) hostSettings(in Input, f *state.Fragment, gateways []netip.Prefix) {
	if !in.Answers[state.Query{Space: state.Host, Link: c.Name}].Found {
		f.Host.Sysctls = append(f.Host.Sysctls,
			state.Sysctl{Name: "net/ipv6/conf/" + c.Name + "/accept_ra", Value: "0", IfPresent: true, Shared: true})
	}
	v4, v6 := false, false
	for _, gw := range gateways {
		v4, v6 = v4 || gw.Addr().Is4(), v6 || gw.Addr().Is6()
	}
	f.Host.Sysctls = append(f.Host.Sysctls, forwarding(v4, v6)...)
}

// podSettings keep the container from what goes to every port of the bridge. A gratuitous ARP when its end comes up is
// needed where others may know its address by another MAC: not when the MAC comes from the address and the bridge, not
// a machine elsewhere, is the gateway. Then nobody sends router advertisements either, and asking for them is vain.
func (c bridgeConf) podSettings(in Input, f *state.Fragment, a addressed, quietly bool) {
	name := in.Request.IfName
	if a.v4 && !quietly {
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + name + "/arp_notify", Value: "1"})
	}
	if a.v6 && c.IsGateway {
		f.Pod.Sysctls = append(f.Pod.Sysctls,
			state.Sysctl{Name: "net/ipv6/conf/" + name + "/router_solicitations", Value: "0", IfPresent: true})
	}
}

func (c bridgeConf) result(r model.Request, br state.Link, ends pair, a addressed) model.Result {
	result := model.Result{
		Interfaces: append([]model.Interface{{Name: br.Name, MAC: br.MAC.String()}}, ends.interfaces(r)...),
		Routes:     a.routes,
	}
	two := 2
	for _, ip := range a.ips {
		ip.Interface = &two
		result.IPs = append(result.IPs, ip)
	}
	return result
}
