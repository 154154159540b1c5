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

// answers is what a pod's kernel would say, as the flags have it. A link that no flag speaks of has an MTU of 1500, and
// the pod's first one an address.
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
				model.Faultf(model.CodeInvalidConf, "give the name of a network of the machine",
					"--nic %s: no network of the machine is %q", flag, name),
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
					model.Faultf(model.CodeInvalidConf, "mtu, mac, address, gateway or tap, for example address=10.244.1.5/24",
						"--nic %s: %w", name, err),
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

// checkDirect refuses flags that no direct binding can have.
func (v *Input) checkDirect() error {
	if v.join != "" && !slices.Contains(state.JoinWays(), state.JoinHow(v.join)) {
		return ui.UsageError(
			model.Faultf(model.CodeInvalidConf, "leave it out: the best way is found", "--join %s: not one of %v", v.join,
				state.JoinWays()),
		)
	}
	const least, most = 8, 30
	if v.subnet != 0 && (v.subnet < least || v.subnet > most) {
		return ui.UsageError(
			model.Faultf(model.CodeInvalidConf, "leave it out for a single address", "--direct-subnet %d: not between %d and %d",
				v.subnet, least, most),
		)
	}
	return nil
}

// gatewaysOf has all gateways of a link be at its other end, which has the hardware address of every routed pod's.
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

// podNIC is an end of a veth pair, as pods have it.
func podNIC(name string) *state.Answer {
	return &state.Answer{
		Found: true, Link: state.Link{Name: name, Kind: state.Veth, MAC: state.SeedMAC(name), MTU: usualMTU, Up: state.On()},
	}
}

// podTap is a tap that a CNI plugin has left in the pod.
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

// describe takes one pair of a flag.
func describe(a *state.Answer, pair string) error {
	key, value, _ := strings.Cut(pair, "=")
	var err error
	switch key {
	case "mtu":
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return fmt.Errorf("mtu %q is no number from 0 to 65535", value)
		}
		a.Link.MTU = int(n)
	case "mac":
		a.Link.MAC, err = state.ParseMAC(value)
	case "address":
		var p netip.Prefix
		if p, err = netip.ParsePrefix(value); err == nil {
			a.Addrs = append(a.Addrs, state.Addr{Link: a.Link.Name, Prefix: p})
		}
	case "gateway":
		var gw netip.Addr
		if gw, err = netip.ParseAddr(value); err == nil {
			a.Routes = append(a.Routes, defaultBy(a.Link.Name, gw))
		}
	default:
		err = fmt.Errorf("%q is not understood", pair)
	}
	return err
}
