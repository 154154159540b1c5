// SPDX-License-Identifier: Apache-2.0

// Package static assigns the addresses in the configuration or that the runtime requests. It has no state: like the
// reference plugin of that name, it does not prevent two attachments with one address.
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

// Allocator assigns fixed addresses.
type Allocator struct{}

// New returns an allocator.
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

// Validate rejects malformed addresses and routes.
func (a *Allocator) Validate(conf json.RawMessage) error {
	_, err := read(ipam.Request{Conf: conf})
	return err
}

// Warnings returns settings with a surprising effect.
func (a *Allocator) Warnings(conf json.RawMessage) []model.Warning {
	var o outer
	var in inner
	if _, err := read(ipam.Request{Conf: conf}); err != nil || json.Unmarshal(conf, &o) != nil ||
		json.Unmarshal(o.IPAM, &in) != nil {
		return nil // Validate says it
	}
	return in.Routes.Warnings()
}

// Add returns the addresses of the configuration, followed by those of CNI_ARGS. args.cni.ips replaces them all, and
// runtimeConfig.ips replaces that.
func (a *Allocator) Add(_ context.Context, req ipam.Request) (model.Result, error) { return read(req) }

// Del has nothing to release.
func (a *Allocator) Del(context.Context, ipam.Request) error { return nil }

// Check reports whether prev has the configured addresses with their gateways.
func (a *Allocator) Check(_ context.Context, req ipam.Request, prev model.Result) error {
	want, err := read(req)
	if err != nil {
		return err
	}
	for _, w := range want.IPs {
		found := false
		for _, have := range prev.IPs {
			if have.Address == w.Address {
				found = true
				if w.Gateway.IsValid() && w.Gateway != have.Gateway {
					return model.Errorf(model.CodeDiffers, "", "static: address %s has the gateway %s, configured is %s",
						w.Address, have.Gateway, w.Gateway)
				}
			}
		}
		if !found {
			return model.Errorf(model.CodeDiffers, "", "static: prevResult does not have the configured address %s", w.Address)
		}
	}
	return nil
}

// Status checks the configuration only.
func (a *Allocator) Status(_ context.Context, req ipam.Request) error {
	_, err := read(req)
	return err
}

// GC has nothing to release.
func (a *Allocator) GC(context.Context, ipam.Request, []model.AttachmentKey) error { return nil }

func read(req ipam.Request) (model.Result, error) {
	var o outer
	var in inner
	if err := ipam.Decode("", req.Conf, &o); err != nil {
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
	ips, err := addresses(req, o, in)
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

func addresses(req ipam.Request, o outer, in inner) ([]model.IP, error) {
	if err := ipam.CheckArgs(req.Args); err != nil {
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
	ips, err := fromArgs(req, ips)
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
func fromArgs(req ipam.Request, ips []model.IP) ([]model.IP, error) {
	if v := ipam.Arg(req.Args, "IP"); v != "" {
		for item := range strings.SplitSeq(v, ",") {
			ip, err := parse("environment: CNI_ARGS IP", item, model.CodeInvalidEnv)
			if err != nil {
				return nil, err
			}
			ips = append(ips, ip)
		}
	}
	if v := ipam.Arg(req.Args, "GATEWAY"); v != "" {
		for item := range strings.SplitSeq(v, ",") {
			gw, err := netip.ParseAddr(strings.TrimSpace(item))
			if err != nil {
				return nil, model.Errorf(model.CodeInvalidEnv, "", "environment: CNI_ARGS GATEWAY %q: %w", item, err)
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
		return model.IP{}, model.Errorf(code, "an address with its prefix length, for example 10.1.0.5/24", "%s %q: %w",
			field, value, err)
	}
	if p.Addr().Is4In6() {
		return model.IP{}, model.Errorf(code, "write it as IPv4", "%s %q is an IPv4 address in IPv6 form", field, value)
	}
	return model.IP{Address: p}, nil
}

// Capabilities returns none.
func (a *Allocator) Capabilities() ipam.Capabilities { return ipam.Capabilities{} }
