// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
)

const usualMTU = 1500

// answers returns the pod's kernel state according to the flags. A link without a flag has an MTU of 1500, and the
// pod's first one an address.
func answers(in plan.Input, flags []string) (state.Answers, error) {
	links := map[string]*state.Answer{}
	names, taps := map[string]string{}, map[string]string{}
	for _, nic := range in.VM.Interfaces {
		link := in.PodLink(nic)
		names[nic.Name], names[link], taps[link] = link, link, in.TapLink(nic)
		links[link] = podNIC(link)
		if nic.Network.Primary && !slices.ContainsFunc(flags, func(f string) bool {
			return strings.HasPrefix(f+",", nic.Name+",") || strings.HasPrefix(f+",", link+",")
		}) {
			links[link].Addrs = []state.Addr{{Link: link, Prefix: netip.MustParsePrefix("10.244.0.10/24")}}
			links[link].Routes = []state.Route{defaultBy(link, netip.MustParseAddr("10.244.0.1"))}
		}
	}
	for _, flag := range flags {
		name, rest, _ := strings.Cut(flag, ",")
		link, ok := names[name]
		if !ok {
			return nil, ui.UsageError(
				model.Errorf(model.CodeInvalidConf, "the networks are "+strings.Join(networkNames(in), ", "),
					"--nic %q: the VM has no network %q", flag, name),
			)
		}
		for rest != "" {
			var pair string
			pair, rest, _ = strings.Cut(rest, ",")
			if pair == "tap" {
				links[taps[link]] = podTap(taps[link])
				continue
			}
			if err := describe(links[link], pair); err != nil {
				return nil, ui.UsageError(
					model.Errorf(model.CodeInvalidConf, "for example --nic "+name+",mtu=1450,address=10.244.1.5/24,gateway=10.244.1.1",
						"--nic %q: %w", flag, err),
				)
			}
		}
	}
	out := state.Answers{}
	for _, q := range plan.Observe(in) {
		a := state.Answer{}
		switch {
		case q.Sysctl != "":
			a = state.Answer{Found: true, Value: "0"}
		case links[q.Gateways] != nil:
			a = gatewaysOf(*links[q.Gateways])
		case links[q.Link] != nil:
			a = *links[q.Link]
			a.Routes = nil
		case links[q.Routes] != nil:
			a = state.Answer{Found: true, Routes: links[q.Routes].Routes}
		}
		out[q] = a
	}
	return out, nil
}

// checkDirect checks the flags of the direct binding.
func (v *Input) checkDirect() error {
	var joins []string
	for _, m := range state.JoinMethods() {
		joins = append(joins, string(m))
	}
	if v.join != "" && !slices.Contains(joins, v.join) {
		return ui.UsageError(
			model.NotOneOf("--join", v.join, joins...),
		)
	}
	const least, most = 8, 30
	if v.subnet != 0 && (v.subnet < least || v.subnet > most) {
		return ui.UsageError(
			model.OutOfRange("--direct-subnet", v.subnet, fmt.Sprintf("%d to %d", least, most), 24),
		)
	}
	return nil
}

// gatewaysOf returns neighbor entries for all gateways of a link, with the MAC address of routed pods' links.
func gatewaysOf(a state.Answer) state.Answer {
	out := state.Answer{Found: true}
	const routed = 0xee
	for _, r := range a.Routes {
		out.Neighs = append(out.Neighs, state.Neigh{
			Link: a.Link.Name, IP: r.Gw, MAC: state.MAC{routed, routed, routed, routed, routed, routed},
		})
	}
	return out
}

// podNIC returns the pod's end of a veth pair.
func podNIC(name string) *state.Answer {
	return &state.Answer{
		Found: true, Link: state.Link{Name: name, Kind: state.Veth, MAC: state.SeedMAC(name), MTU: usualMTU, Up: state.On()},
	}
}

// podTap returns a tap of a CNI plugin in the pod.
func podTap(name string) *state.Answer {
	return &state.Answer{
		Found: true, Link: state.Link{Name: name, Kind: state.Tap, MAC: state.SeedMAC(name), MTU: usualMTU, Up: state.On()},
	}
}

func defaultBy(link string, gw netip.Addr) state.Route {
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gw.Is6() {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return state.Route{Dst: all, Gw: gw, Link: link}
}

// describe parses one pair of a flag.
func describe(a *state.Answer, pair string) error {
	key, value, _ := strings.Cut(pair, "=")
	switch key {
	case "mtu":
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return fmt.Errorf("mtu %q is not a whole number from 0 to 65535", value)
		}
		a.Link.MTU = int(n)
	case "mac":
		mac, err := state.ParseMAC(value)
		if err != nil {
			return fmt.Errorf("mac %q is not a MAC address", value)
		}
		a.Link.MAC = mac
	case "address":
		p, err := netip.ParsePrefix(value)
		if err != nil {
			return fmt.Errorf("address %q is not an address with a prefix length", value)
		}
		a.Addrs = append(a.Addrs, state.Addr{Link: a.Link.Name, Prefix: p})
	case "gateway":
		gw, err := netip.ParseAddr(value)
		if err != nil {
			return fmt.Errorf("gateway %q is not an IP address", value)
		}
		a.Routes = append(a.Routes, defaultBy(a.Link.Name, gw))
	default:
		return fmt.Errorf("%q is not mtu, mac, address, gateway or tap", key)
	}
	return nil
}

// networkNames returns the names of the VM's networks.
func networkNames(in plan.Input) (names []string) {
	for _, nic := range in.VM.Interfaces {
		names = append(names, nic.Name)
	}
	return names
}
