// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// bridgeMAC returns the MAC of the bridge between pod and guest: the same in every pod, so that the gateway's MAC stays
// valid after a migration.
func bridgeMAC() state.MAC { return state.MAC{2} }

// routerAddr returns the link-local address of that bridge.
func routerAddr() netip.Addr { return netip.MustParseAddr("fe80::1") }

// masquerade is the binding that translates between the guest's own address and the pod's.
type masquerade struct{ *planner }

// plan creates a subnet for the guest behind the pod.
func (p masquerade) plan(pod *Step) error {
	if err := p.checkNamesFree(p.names.bridge, p.names.tap); err != nil {
		return err
	}
	if p.out.Device.MAC == bridgeMAC().String() {
		return p.fault(p.nic, "macAddress", model.CodeInvalidConf, "choose another one",
			"%s is the address of the bridge in the pod", p.out.Device.MAC)
	}
	f := &p.out.Fragment.Pod
	bridge := state.Link{
		Name: p.names.bridge, Kind: state.Bridge, MAC: bridgeMAC(), MTU: p.mtu, Up: state.On(), Alias: p.mark(),
	}
	if p.SoftChecksums {
		bridge.TxChecksum = state.Off()
	}
	f.Links = []state.Link{bridge, p.tap()}
	p.disableIPv6(p.names.tap)
	p.out.Device.Target = p.names.tap
	guest := model.GuestConfig{}
	dhcp, own := leases{p.planner}, []netip.Addr(nil)
	for _, v6 := range []bool{false, true} {
		if !p.addr(v6).IsValid() {
			continue
		}
		s, err := p.subnet(v6)
		if err != nil {
			return err
		}
		f.Addrs = append(f.Addrs, state.Addr{
			Link: p.names.bridge, Prefix: netip.PrefixFrom(s.gateway, s.cidr.Bits()), NoDAD: v6,
		})
		f.Tables = append(f.Tables, p.translate(s))
		own = append(own, s.guest)
		if v6 {
			// The guest's router has an address that is the same in every pod, and available at once.
			f.Addrs = append(f.Addrs, state.Addr{Link: p.names.bridge, Prefix: netip.PrefixFrom(routerAddr(), 64), NoDAD: true})
			f.Sysctls = append(f.Sysctls, state.Sysctl{
				Name: "net/ipv6/conf/" + p.names.bridge + "/addr_gen_mode", Value: "1", IfPresent: true,
			})
			p.set(pod, forward6, "1")
			guest.DHCP6, guest.RA = dhcp.ipv6(s), dhcp.advertise(s)
			continue
		}
		p.set(pod, forward4, "1")
		f.Sysctls = append(f.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + p.names.bridge + "/route_localnet", Value: "1"})
		guest.DHCP4 = dhcp.masqueradeDHCP4(s)
	}
	guard{p.planner}.atBridge(own)
	if guest.DHCP4 != nil || guest.DHCP6 != nil {
		p.setGuestConfig(guest, p.names.bridge, bridgeMAC(), false)
	}
	return nil
}

// subnet is the subnet between pod and guest of one family: its first address is the gateway's, its second the guest's.
type subnet struct {
	cidr           netip.Prefix
	gateway, guest netip.Addr
}

func (p masquerade) subnet(v6 bool) (subnet, error) {
	cidr, field := p.nic.Network.CIDR4, "vmNetworkCIDR"
	if v6 {
		cidr, field = p.nic.Network.CIDR6, "vmIPv6NetworkCIDR"
	}
	path := p.networkPath(p.nic) + ".pod." + field
	for _, a := range p.pod.Addrs {
		if cidr.Contains(a.Prefix.Addr()) || !a.NoPrefixRoute && a.Prefix.Overlaps(cidr) {
			return subnet{}, model.Errorf(model.CodeInvalidConf, "choose a subnet that the pod does not use",
				"%s: %s overlaps the pod's own %s on %s", path, cidr, a.Prefix, p.names.pod)
		}
	}
	for _, r := range p.routes {
		if r.Gw.IsValid() && cidr.Contains(r.Gw) {
			return subnet{}, model.Errorf(model.CodeInvalidConf, "choose a subnet that the pod does not use",
				"%s: %s holds the pod's gateway %s", path, cidr, r.Gw)
		}
	}
	if v6 && p.mtu < leastIPv6 {
		return subnet{}, p.fault(p.nic, "", model.CodeInvalidEnv, "raise the MTU of the pod's network",
			"the pod's link %s has an MTU of %d, IPv6 needs %d", p.names.pod, p.mtu, leastIPv6)
	}
	gateway := cidr.Masked().Addr().Next()
	return subnet{cidr: cidr, gateway: gateway, guest: gateway.Next()}, nil
}
