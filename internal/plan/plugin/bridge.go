// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Bridge connects the containers of a node to one bridge device.
type Bridge struct {
	// SourceGuard enables anti-spoofing on every port whose addresses are known, unless the network disables it. The
	// reference plugin has no anti-spoofing.
	SourceGuard bool
}

// Type returns "bridge".
func (Bridge) Type() string { return "bridge" }

// Capabilities returns the optional interfaces that the plugin implements.
func (b Bridge) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: b} }

// Keys returns the configuration keys, those of the reference plugin.
func (Bridge) Keys() []string {
	return interfaceKeys("bridge", "isGateway", "isDefaultGateway", "forceAddress", "ipMasq", "ipMasqBackend", "mtu",
		"hairpinMode", "promiscMode", "vlan", "vlanTrunk[].minID", "vlanTrunk[].maxID", "vlanTrunk[].id",
		"preserveDefaultVlan", "macspoofchk", "enabledad", "disableContainerInterface", "portIsolation", "guard", dadTimeout)
}

// IPAM returns the ipam section. A bridge without one provides layer 2 only.
func (Bridge) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode parses and validates the configuration: it rejects options that contradict each other.
func (Bridge) Decode(conf model.PluginConf) (any, error) { return readBridge(conf) }

// Observe returns the queries for the bridge, its addresses and the interface's name, which must be free. Without a
// gateway address, which differs between nodes, the host's boot ID seeds the bridge's MAC address.
func (Bridge) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readBridge)
	if err != nil {
		return nil, err
	}
	queries := []state.Query{freeName(in.Request), {Space: state.Host, Link: c.Name}}
	if !c.ipam || !c.IsGateway || in.IPAMTiming != IPAMFirst {
		queries = append(queries, bootID())
	}
	if c.vlanGateway() {
		queries = append(queries, state.Query{Space: state.Host, Link: c.gatewayLink()})
	}
	return append(queries, c.masq().queries()...), checkArgs(in.Request)
}

// ReadyQueries returns the queries for the programs that masquerading needs.
func (Bridge) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readBridge)
	if err != nil {
		return nil
	}
	return c.masq().queries()
}

// Ready returns an error if masquerading cannot work on the node.
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

// Plan creates the bridge unless it exists, a port for the container, and the gateway's addresses on the bridge.
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
		mac = vmMAC(in.Request)
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
	stableMAC := c.IsGateway && mac.IsZero() && in.IPAMTiming == IPAMFirst && a.known()
	if mac.IsZero() && in.IPAMTiming == IPAMFirst && a.known() {
		mac = portMAC(c.Name, a.ips[0].Address.Addr())
	}
	veth := newPair(in.Request, c.MTU, mac)
	c.port(&veth)
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	f.Host.Links, f.Pod.Links = []state.Link{br, veth.host}, []state.Link{veth.pod}
	if c.vlanGateway() {
		f.Host.Links = append(f.Host.Links, c.vlanDevice(in, gateways)...)
	}
	if f.Host.Addrs, err = c.gatewayAddrs(in, gateways); err != nil {
		return Step{}, err
	}
	c.hostSettings(in, &f, gateways)
	c.podSettings(in, &f, a, stableMAC)
	c.podAddrs(&f, veth, a)
	f.Host.Tables = c.guardTables(in.Request, veth, a, b.SourceGuard)
	if err := c.masq().plan(in, &f, a); err != nil {
		return Step{}, err
	}
	result := c.result(in.Request, br, veth, a)
	result.Interfaces = append(result.Interfaces, c.gatewayInterface(f.Host.Links)...)
	result.DNS = dns
	if err := in.overrideDNS(&result); err != nil {
		return Step{}, err
	}
	return Step{Fragment: f, Result: result}, nil
}

// device returns the wanted state of the bridge. A bridge that another program created keeps its MAC address and MTU
// and is not marked; it is set up, and promiscuous if promiscMode is set.
func (c bridgeConf) device(in Input, gateways []netip.Prefix) (state.Link, error) {
	br := state.Link{Name: c.Name, Kind: state.Bridge, Up: state.On(), Shared: true}
	if c.PromiscMode {
		br.Promisc = state.On()
	}
	if c.filtering() {
		br.Bridge = &state.BridgeAttrs{VLANFiltering: state.On()}
	}
	have := in.Answers[state.Query{Space: state.Host, Link: c.Name}]
	switch {
	case !have.Found:
		br.MTU, br.Alias = c.MTU, SharedMark
		if in.IPAMTiming != IPAMFirst {
			gateways = nil
		}
		br.MAC = state.SeedMAC(c.bridgeSeed(in, gateways))
	case have.Link.Kind != state.Bridge:
		return br, model.Errorf(model.CodeInvalidConf, "choose another name for the bridge, or remove that link",
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

// bridgeSeed returns the seed of the bridge's MAC address. It differs between nodes, whose bridges may be in one
// broadcast domain, and is the same for all attachments of a node, which may create the bridge concurrently.
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

// hostSettings adds the node's sysctls other than those of the port: a bridge that weft creates ignores router
// advertisements, and the node forwards if the bridge is a gateway.
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

// podSettings adds the sysctls that reduce broadcast traffic to the bridge's ports. The container needs no gratuitous
// ARP if its MAC address is derived from its IP address and the bridge is the gateway: no neighbor has another MAC
// address cached. A bridge that is the gateway sends no router advertisements, so the container does not solicit them.
func (c bridgeConf) podSettings(in Input, f *state.Fragment, a addressed, stableMAC bool) {
	name := in.Request.IfName
	if a.v4 && !stableMAC {
		f.Pod.Sysctls = append(f.Pod.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + name + "/arp_notify", Value: "1"})
	}
	if a.v6 && c.IsGateway {
		f.Pod.Sysctls = append(f.Pod.Sysctls,
			state.Sysctl{Name: "net/ipv6/conf/" + name + "/router_solicitations", Value: "0", IfPresent: true})
	}
}

func (c bridgeConf) result(r model.Request, br state.Link, veth pair, a addressed) model.Result {
	result := model.Result{
		Interfaces: append([]model.Interface{{Name: br.Name, MAC: br.MAC.String()}}, veth.interfaces(r)...),
		Routes:     a.routes,
	}
	two := 2
	for _, ip := range a.ips {
		ip.Interface = &two
		result.IPs = append(result.IPs, ip)
	}
	return result
}
