// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/whereabouts"
	"github.com/weft-net/weft/internal/model"
)

// The names in "ipam": {"type": …}.
const (
	TypeWeft        = "weft"
	TypeWhereabouts = whereabouts.Type
)

// settings is a decoded and validated configuration.
type settings struct {
	wants  []want
	static []model.IP
	// pool is set where a pool is named and no range: all its regions are acceptable.
	pool      string
	requested []netip.Addr
	gateway   netip.Addr
	routes    ipam.Routes
	dns       model.DNS
	claim     string // "namespace/name" of an IPAMClaim
}

// outer is the relevant part of the plugin object.
type outer struct {
	CNIVersion    string          `json:"cniVersion"`
	IPAM          json.RawMessage `json:"ipam"`
	RuntimeConfig struct {
		IPs []string `json:"ips"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs   []string `json:"ips"`
			Claim string   `json:"ipam-claim-reference"`
		} `json:"cni"`
	} `json:"args"`
}

// rangeConf is one range as a configuration writes it.
type rangeConf struct {
	Range   string   `json:"range"`
	Start   string   `json:"range_start"`
	End     string   `json:"range_end"`
	Exclude []string `json:"exclude"`
}

// inner is the ipam section: whereabouts' keys that have a meaning here, and pool.
type inner struct {
	Range     string      `json:"range"`
	Start     string      `json:"range_start"`
	End       string      `json:"range_end"`
	Exclude   []string    `json:"exclude"`
	Type      string      `json:"type"`
	Pool      string      `json:"pool"`
	Ranges    []rangeConf `json:"ipRanges"`
	Gateway   string      `json:"gateway"`
	Routes    ipam.Routes `json:"routes"`
	DNS       model.DNS   `json:"dns"`
	Addresses []struct {
		Address string `json:"address"`
		Gateway string `json:"gateway"`
	} `json:"addresses"`
	Overlapping *bool  `json:"enable_overlapping_ranges"`
	NetworkName string `json:"network_name"`
	// no effect; checked for its type only
	Path string `json:"configuration_path"`
}

// settings decodes and validates the configuration of an attachment.
func (ps *poolSelector) settings(req ipam.Request) (settings, error) {
	var s settings
	var o outer
	var in inner
	if err := ipam.Decode("", req.Conf, &o); err != nil {
		return s, err
	}
	if len(o.IPAM) == 0 {
		return s, ipam.Invalid(`add "ipam": {"type": "whereabouts", "range": "10.1.0.0/16"}`,
			"configuration: ipam is missing")
	}
	section, err := whereabouts.Complete(o.IPAM, ps.cfg.ReadFile)
	if err != nil {
		return s, err
	}
	if err := ipam.Decode("ipam", section, &in); err != nil {
		return s, err
	}
	s.routes, s.dns = in.Routes, in.DNS
	if err := s.routes.Check(); err != nil {
		return s, err
	}
	if in.Gateway != "" {
		if s.gateway, err = addr("ipam.gateway", in.Gateway); err != nil {
			return s, err
		}
	}
	if err := s.readStatic(in); err != nil {
		return s, err
	}
	if err := s.readRanges(in); err != nil {
		return s, err
	}
	if err := s.readRequests(req, o); err != nil {
		return s, err
	}
	return s, s.families(o.CNIVersion)
}

func addr(field, value string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(value))
	if err != nil || a.Zone() != "" {
		return a, ipam.Invalid("an address, for example 10.1.0.5", "%s %q is no address", field, value)
	}
	return a.Unmap(), nil
}

func (s *settings) readStatic(in inner) error {
	for i, a := range in.Addresses {
		field := "ipam.addresses[" + strconv.Itoa(i) + "]"
		p, err := netip.ParsePrefix(a.Address)
		if err != nil {
			return ipam.Invalid("an address with its prefix length, for example 10.1.0.5/24",
				"%s.address %q is no address with a prefix length", field, a.Address)
		}
		ip := model.IP{Address: p}
		if a.Gateway != "" {
			if ip.Gateway, err = addr(field+".gateway", a.Gateway); err != nil {
				return err
			}
			if ip.Gateway.Is4() != p.Addr().Is4() {
				return ipam.Invalid("write one of the address's family", "%s: address %s and gateway %s are of different families",
					field, p, ip.Gateway)
			}
		}
		s.static = append(s.static, ip)
	}
	return nil
}

func (s *settings) readRanges(in inner) error {
	ranges, names := in.Ranges, []string{}
	for i := range ranges {
		names = append(names, "ipam.ipRanges["+strconv.Itoa(i)+"]")
	}
	if in.Range != "" {
		ranges, names = append([]rangeConf{{in.Range, in.Start, in.End, in.Exclude}}, ranges...),
			append([]string{"ipam"}, names...)
	}
	if len(ranges) == 0 && (in.Type == TypeWhereabouts || in.Pool == "") {
		if in.Type == TypeWhereabouts && len(s.static) > 0 {
			return nil
		}
		hint := `add "range": "10.1.0.0/16"`
		if in.Type != TypeWhereabouts {
			hint += ` or "pool": "NAME"`
		}
		return ipam.Invalid(hint, "ipam.range is missing")
	}
	if in.Type != TypeWhereabouts && in.Pool != "" {
		if err := model.CheckName("ipam.pool", in.Pool); err != nil {
			return err
		}
	}
	if len(ranges) == 0 {
		s.pool = in.Pool
		return nil
	}
	for i, r := range ranges {
		w, err := readRange(names[i], r)
		if err != nil {
			return err
		}
		if w.pool, w.grow = in.Pool, false; in.Pool == "" || in.Type == TypeWhereabouts {
			w.pool, w.grow = poolName(in, w), true
		}
		w.alias, w.spans = in.NetworkName, s.withoutOwn(w.spans)
		if len(w.spans) == 0 {
			return ipam.Invalid("widen the range, or exclude less", "%s.range %q has no allocatable address",
				w.field, r.Range)
		}
		s.wants = append(s.wants, w)
	}
	return nil
}

// withoutOwn returns the spans without the gateway and the static addresses.
func (s *settings) withoutOwn(spans []addrspan.Span) []addrspan.Span {
	if s.gateway.IsValid() {
		spans = addrspan.Without(spans, addrspan.Single(s.gateway))
	}
	for _, ip := range s.static {
		spans = addrspan.Without(spans, addrspan.Single(ip.Address.Addr()))
	}
	return spans
}

// poolName returns the pool of a range that names none. Ranges of one pool share their addresses, so that overlapping ranges
// never allocate one twice. A network_name, or a range that may overlap others, has a pool of its own.
func poolName(in inner, w want) string {
	name := TypeWhereabouts
	if in.Type != TypeWhereabouts {
		name = "default"
	}
	if in.NetworkName != "" {
		name += "-" + in.NetworkName
	}
	if in.Overlapping != nil && !*in.Overlapping {
		name += "-" + w.network.String()
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	return strings.TrimRight(name, "-")
}

func (s *settings) families(cniVersion string) error {
	v4, v6 := 0, 0
	add := func(a netip.Addr) {
		if a.Is4() {
			v4++
		} else {
			v6++
		}
	}
	for _, w := range s.wants {
		add(w.network.Addr())
	}
	for _, ip := range s.static {
		add(ip.Address.Addr())
	}
	return ipam.OnePerFamily(cniVersion, v4, v6)
}
