// SPDX-License-Identifier: Apache-2.0

// Package static gives the addresses that stand in the configuration or that the caller asks for. It remembers nothing,
// and two attachments with the same address are its user's business, as with the reference plugin of that name.
package static

import (
	"context"
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Allocator gives fixed addresses.
type Allocator struct{}

// New makes an allocator.
func New() *Allocator { return &Allocator{} }

type outer struct {
	CNIVersion    string          `json:"cniVersion"`
	IPAM          json.RawMessage `json:"ipam"`
	RuntimeConfig struct {
		IPs []string `json:"ips"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
}

type inner struct {
	Addresses []struct {
		Address string `json:"address"`
		Gateway string `json:"gateway"`
	} `json:"addresses"`
	Routes ipam.Routes `json:"routes"`
	DNS    model.DNS   `json:"dns"`
}

// Type is "static".
func (*Allocator) Type() string { return "static" }

// Keys are the options of the reference plugin.
func (*Allocator) Keys() []string {
	return []string{
		"type", "addresses[].address", "addresses[].gateway", "routes[].dst", "routes[].gw", "routes[].mtu",
		"routes[].advmss", "routes[].priority", "routes[].table", "routes[].scope",
		"dns.nameservers[]", "dns.domain", "dns.search[]", "dns.options[]",
	}
}

// Validate refuses malformed addresses and routes.
func (a *Allocator) Validate(conf json.RawMessage) error {
	_, err := read(ipam.Ask{Conf: conf})
	return err
}

// Doubts finds settings that surprise.
func (a *Allocator) Doubts(conf json.RawMessage) []model.Doubt {
	var o outer
	var in inner
	if _, err := read(ipam.Ask{Conf: conf}); err != nil || json.Unmarshal(conf, &o) != nil ||
		json.Unmarshal(o.IPAM, &in) != nil {
		return nil // Validate says it
	}
	return in.Routes.Doubts()
}

// Add gives the addresses of the configuration, with those of CNI_ARGS behind them. args.cni.ips replaces them all, and
// runtimeConfig.ips replaces that.
func (a *Allocator) Add(_ context.Context, ask ipam.Ask) (model.Result, error) { return read(ask) }

// Del has nothing to give back.
func (a *Allocator) Del(context.Context, ipam.Ask) error { return nil }

// Check tells whether prev has the configured addresses with their gateways.
func (a *Allocator) Check(_ context.Context, ask ipam.Ask, prev model.Result) error {
	want, err := read(ask)
	if err != nil {
		return err
	}
	for _, w := range want.IPs {
		found := false
		for _, have := range prev.IPs {
			if have.Address == w.Address {
				found = true
				if w.Gateway.IsValid() && w.Gateway != have.Gateway {
					return model.Faultf(model.CodeDiffers, "", "static: address %s has the gateway %s, configured is %s",
						w.Address, have.Gateway, w.Gateway)
				}
			}
		}
		if !found {
			return model.Faultf(model.CodeDiffers, "", "static: prevResult does not have the configured address %s", w.Address)
		}
	}
	return nil
}

// Status is a matter of the configuration only.
func (a *Allocator) Status(_ context.Context, ask ipam.Ask) error {
	_, err := read(ask)
	return err
}

// GC has nothing to take back.
func (a *Allocator) GC(context.Context, ipam.Ask, []model.AttachmentKey) error { return nil }

func read(ask ipam.Ask) (model.Result, error) {
	var o outer
	var in inner
	if err := ipam.Decode("", ask.Conf, &o); err != nil {
		return model.Result{}, err
	}
	if len(o.IPAM) == 0 {
		return model.Result{}, ipam.Invalid("", "configuration: ipam is missing")
	}
	if err := ipam.Decode("ipam", o.IPAM, &in); err != nil {
		return model.Result{}, err
	}
	if err := in.Routes.Check(); err != nil {
		return model.Result{}, err
	}
	ips, err := addresses(ask, o, in)
	if err != nil {
		return model.Result{}, err
	}
	v4, v6 := 0, 0
	for _, ip := range ips {
		if ip.Address.Addr().Is4() {
			v4++
		} else {
			v6++
		}
	}
	return model.Result{IPs: ips, Routes: in.Routes, DNS: in.DNS}, ipam.OnePerFamily(o.CNIVersion, v4, v6)
}

func addresses(ask ipam.Ask, o outer, in inner) ([]model.IP, error) {
	if err := ipam.CheckArgs(ask.Args); err != nil {
		return nil, err
	}
	var ips []model.IP
	for i, a := range in.Addresses {
		ip, err := parse("ipam.addresses["+strconv.Itoa(i)+"].address", a.Address, model.CodeInvalidConf)
		if err != nil {
			return nil, err
		}
		if a.Gateway != "" {
			if ip.Gateway, err = netip.ParseAddr(a.Gateway); err != nil {
				return nil, ipam.Invalid("", "ipam.addresses[%d].gateway %q: %w", i, a.Gateway, err)
			}
			ip.Gateway = ip.Gateway.Unmap()
			if ip.Gateway.Is4() != ip.Address.Addr().Is4() {
				return nil, ipam.Invalid("", "ipam.addresses[%d]: address %s and gateway %s are of different families",
					i, ip.Address, ip.Gateway)
			}
		}
		ips = append(ips, ip)
	}
	ips, err := fromArgs(ask, ips)
	if err != nil {
		return nil, err
	}
	for _, list := range []struct {
		field  string
		values []string
	}{{"args.cni.ips", o.Args.CNI.IPs}, {"runtimeConfig.ips", o.RuntimeConfig.IPs}} {
		if len(list.values) == 0 {
			continue
		}
		ips = nil
		for _, v := range list.values {
			ip, err := parse(list.field, v, model.CodeInvalidConf)
			if err != nil {
				return nil, err
			}
			ips = append(ips, ip)
		}
	}
	return ips, nil
}

// fromArgs adds the addresses of CNI_ARGS; its gateways go to every address in whose subnet they are.
func fromArgs(ask ipam.Ask, ips []model.IP) ([]model.IP, error) {
	if v := ipam.Arg(ask.Args, "IP"); v != "" {
		for item := range strings.SplitSeq(v, ",") {
			ip, err := parse("environment: CNI_ARGS IP", item, model.CodeInvalidEnv)
			if err != nil {
				return nil, err
			}
			ips = append(ips, ip)
		}
	}
	if v := ipam.Arg(ask.Args, "GATEWAY"); v != "" {
		for item := range strings.SplitSeq(v, ",") {
			gw, err := netip.ParseAddr(strings.TrimSpace(item))
			if err != nil {
				return nil, model.Faultf(model.CodeInvalidEnv, "", "environment: CNI_ARGS GATEWAY %q: %w", item, err)
			}
			for i := range ips {
				if ips[i].Address.Masked().Contains(gw.Unmap()) {
					ips[i].Gateway = gw.Unmap()
				}
			}
		}
	}
	return ips, nil
}

func parse(field, value string, code model.Code) (model.IP, error) {
	p, err := netip.ParsePrefix(strings.TrimSpace(value))
	if err != nil {
		return model.IP{}, model.Faultf(code, "an address with its prefix length, for example 10.1.0.5/24", "%s %q: %w",
			field, value, err)
	}
	if p.Addr().Is4In6() {
		return model.IP{}, model.Faultf(code, "write it as IPv4", "%s %q is an IPv4 address in IPv6 form", field, value)
	}
	return model.IP{Address: p}, nil
}

// Capabilities are none beside giving what its configuration says.
func (a *Allocator) Capabilities() ipam.Capabilities { return ipam.Capabilities{} }
