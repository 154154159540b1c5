// SPDX-License-Identifier: Apache-2.0

// Package poolconf reads the IPAM configurations whose addresses come from pools of blocks: weft's own, whereabouts' and
// Calico's. It reads them into wants, which say which addresses of which pool will do, and uses no datastore.
package poolconf

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/whereabouts"
	"github.com/weft-net/weft/internal/model"
)

// The names in "ipam": {"type": …}. TypeCalico is that of the cluster's network.
const (
	TypeWeft        = "weft"
	TypeWhereabouts = whereabouts.Type
	TypeCalico      = "calico-ipam"
)

// Reader decodes configurations. It is safe for concurrent use.
type Reader struct {
	readFile func(string) ([]byte, error)
	confs    confs
}

// NewReader returns a reader. readFile reads whereabouts' flat file; nil means that there is none.
func NewReader(readFile func(string) ([]byte, error)) *Reader {
	return &Reader{readFile: readFile}
}

// Settings is a decoded and validated configuration of weft's type or whereabouts'.
type Settings struct {
	// Wants are the addresses to allocate, one of each range; Static are those of the configuration itself.
	Wants  []Want
	Static []model.IP
	// Pool is set where a pool is named and no range: all its regions are acceptable.
	Pool string
	// Requested are the addresses that the runtime requests; Assign sets them in Wants.
	Requested []netip.Addr
	Gateway   netip.Addr
	Routes    ipam.Routes
	DNS       model.DNS
	Claim     string // the ID of the claim that owns the addresses: of an IPAMClaim "namespace/name"
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

// Settings decodes and validates the configuration of an attachment of weft's type or whereabouts', with the addresses
// that the runtime requests.
func (cr *Reader) Settings(req ipam.Request) (Settings, error) {
	var s Settings
	var o outer
	var in inner
	if err := ipam.Decode("", req.Conf, &o); err != nil {
		return s, err
	}
	if len(o.IPAM) == 0 {
		return s, ipam.Invalid(`add "ipam": {"type": "whereabouts", "range": "10.1.0.0/16"}`,
			"configuration: ipam is missing")
	}
	section, err := whereabouts.Complete(o.IPAM, cr.readFile)
	if err != nil {
		return s, err
	}
	if err := ipam.Decode("ipam", section, &in); err != nil {
		return s, err
	}
	s.Routes, s.DNS = in.Routes, in.DNS
	if err := s.Routes.Check(); err != nil {
		return s, err
	}
	if in.Gateway != "" {
		if s.Gateway, err = addr("ipam.gateway", in.Gateway); err != nil {
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

func (s *Settings) readStatic(in inner) error {
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
		s.Static = append(s.Static, ip)
	}
	return nil
}

func (s *Settings) readRanges(in inner) error {
	ranges, names := in.Ranges, []string{}
	for i := range ranges {
		names = append(names, "ipam.ipRanges["+strconv.Itoa(i)+"]")
	}
	if in.Range != "" {
		ranges, names = append([]rangeConf{{in.Range, in.Start, in.End, in.Exclude}}, ranges...),
			append([]string{"ipam"}, names...)
	}
	if len(ranges) == 0 && (in.Type == TypeWhereabouts || in.Pool == "") {
		if in.Type == TypeWhereabouts && len(s.Static) > 0 {
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
		s.Pool = in.Pool
		return nil
	}
	for i, r := range ranges {
		w, err := readRange(names[i], r)
		if err != nil {
			return err
		}
		if w.Pool, w.Grow = in.Pool, false; in.Pool == "" || in.Type == TypeWhereabouts {
			w.Pool, w.Grow = poolName(in, w), true
		}
		w.Alias, w.Spans = in.NetworkName, s.withoutOwn(w.Spans)
		if len(w.Spans) == 0 {
			return ipam.Invalid("widen the range, or exclude less", "%s.range %q has no allocatable address",
				w.Field, r.Range)
		}
		s.Wants = append(s.Wants, w)
	}
	return nil
}

// withoutOwn returns the spans without the gateway and the static addresses.
func (s *Settings) withoutOwn(spans []addrspan.Span) []addrspan.Span {
	if s.Gateway.IsValid() {
		spans = addrspan.Without(spans, addrspan.Single(s.Gateway))
	}
	for _, ip := range s.Static {
		spans = addrspan.Without(spans, addrspan.Single(ip.Address.Addr()))
	}
	return spans
}

// poolName returns the pool of a range that names none. Ranges of one pool share their addresses, so that overlapping ranges
// never allocate one twice. A network_name, or a range that may overlap others, has a pool of its own.
func poolName(in inner, w Want) string {
	name := TypeWhereabouts
	if in.Type != TypeWhereabouts {
		name = "default"
	}
	if in.NetworkName != "" {
		name += "-" + in.NetworkName
	}
	if in.Overlapping != nil && !*in.Overlapping {
		name += "-" + w.Network.String()
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

func (s *Settings) families(cniVersion string) error {
	v4, v6 := 0, 0
	add := func(a netip.Addr) {
		if a.Is4() {
			v4++
		} else {
			v6++
		}
	}
	for _, w := range s.Wants {
		add(w.Network.Addr())
	}
	for _, ip := range s.Static {
		add(ip.Address.Addr())
	}
	return ipam.OnePerFamily(cniVersion, v4, v6)
}

// HasGateway reports whether the gateway belongs to a range: the one that contains it, or any of its family if none
// does.
func (s *Settings) HasGateway(w Want) bool {
	if !s.Gateway.IsValid() || s.Gateway.BitLen() != w.Network.Addr().BitLen() {
		return false
	}
	inOne := slices.ContainsFunc(s.Wants, func(w Want) bool { return w.Network.Contains(s.Gateway) })
	return !inOne || w.Network.Contains(s.Gateway)
}

// Keys returns the options of an IPAM type, as ipam.Allocator.Keys does.
func Keys(typ string) []string {
	if typ == TypeCalico {
		return []string{"type", "assign_ipv4", "assign_ipv6", "ipv4_pools[]", "ipv6_pools[]"}
	}
	keys := []string{
		"type", "range", "range_start", "range_end", "exclude[]", "ipRanges[].range", "ipRanges[].range_start",
		"ipRanges[].range_end", "ipRanges[].exclude[]", "gateway", "routes[].dst", "routes[].gw", "routes[].mtu",
		"routes[].advmss", "routes[].priority", "routes[].table", "routes[].scope",
		"dns.nameservers[]", "dns.domain", "dns.search[]", "dns.options[]", "addresses[].address", "addresses[].gateway",
		"enable_overlapping_ranges", "network_name",
	}
	if typ == TypeWeft {
		return append(keys, "pool")
	}
	return append(keys, "log_file", "log_level", "configuration_path", "kubernetes.kubeconfig", "kubernetes.k8s_api_root",
		"leader_lease_duration", "leader_renew_deadline", "leader_retry_period", "reconciler_cron_expression",
		"sleep_for_race",
		"node_slice_size", "datastore", "etcd_host", "etcd_username", "etcd_password", "etcd_key_file", "etcd_cert_file",
		"etcd_ca_cert_file")
}
