// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// result is an ADD's result in the format since 0.3.0, which suffices for most checks.
type result struct {
	CNIVersion string            `json:"cniVersion"`
	Interfaces []resultInterface `json:"interfaces"`
	IPs        []resultIP        `json:"ips"`
	Routes     []resultRoute     `json:"routes"`
}

type resultInterface struct {
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	Sandbox string `json:"sandbox"`
}

type resultIP struct {
	Version   string `json:"version"`
	Address   string `json:"address"`
	Gateway   string `json:"gateway"`
	Interface *int   `json:"interface"`
}

type resultRoute struct {
	Dst      string `json:"dst"`
	GW       string `json:"gw"`
	MTU      int    `json:"mtu"`
	Priority int    `json:"priority"`
}

func (a response) result() (result, error) {
	var r result
	if err := decodeOne(a.stdout, &r); err != nil {
		return r, fmt.Errorf("the result is not a JSON object: %w: %s", err, short(string(a.stdout)))
	}
	return r, nil
}

// validateResult validates a result for its version.
func validateResult(raw []byte, version string, ipam bool) error {
	var r map[string]json.RawMessage
	if err := decodeOne(raw, &r); err != nil {
		return fmt.Errorf("the result is not a JSON object: %w: %s", err, short(string(raw)))
	}
	if got := strings.Trim(string(r["cniVersion"]), `"`); got != version {
		return fmt.Errorf("cniVersion is %q, the configuration's is %q", got, version)
	}
	if version == "0.1.0" || version == "0.2.0" {
		return validateOld(r, ipam)
	}
	for _, old := range []string{"ip4", "ip6"} {
		if r[old] != nil {
			return fmt.Errorf("%s belongs to versions before 0.3.0", old)
		}
	}
	return validateNew(raw, version)
}

// validateOld validates the format before 0.3.0: ip4 and ip6, each with its address and its routes.
func validateOld(r map[string]json.RawMessage, ipam bool) error {
	for _, key := range []string{"ips", "interfaces", "routes"} {
		if r[key] != nil {
			return fmt.Errorf("%s belongs to versions from 0.3.0 on", key)
		}
	}
	for _, key := range []string{"ip4", "ip6"} {
		if r[key] == nil {
			continue
		}
		var ip struct {
			IP     string        `json:"ip"`
			Routes []resultRoute `json:"routes"`
		}
		if err := json.Unmarshal(r[key], &ip); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if p, err := netip.ParsePrefix(ip.IP); err != nil || p.Addr().Is4() != (key == "ip4") {
			return fmt.Errorf("%s.ip %q is not a prefix of its family", key, ip.IP)
		}
	}
	if ipam && r["ip4"] == nil && r["ip6"] == nil {
		return fmt.Errorf("neither ip4 nor ip6 is set")
	}
	return nil
}

func validateNew(raw []byte, version string) error {
	var r result
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("the result has wrong types: %w", err)
	}
	for i, ip := range r.IPs {
		p, err := netip.ParsePrefix(ip.Address)
		if err != nil {
			return fmt.Errorf("ips[%d].address %q is not an address with prefix length", i, ip.Address)
		}
		if _, err := netip.ParseAddr(ip.Gateway); ip.Gateway != "" && err != nil {
			return fmt.Errorf("ips[%d].gateway %q is not an address", i, ip.Gateway)
		}
		family := map[bool]string{true: "4", false: "6"}[p.Addr().Is4()]
		if slices.Contains([]string{"0.3.0", "0.3.1", "0.4.0"}, version) {
			if ip.Version != family {
				return fmt.Errorf("ips[%d].version is %q, version %s requires %q", i, ip.Version, version, family)
			}
		} else if ip.Version != "" {
			return fmt.Errorf("ips[%d].version belongs to versions before 1.0.0", i)
		}
		if ip.Interface != nil && (*ip.Interface < 0 || *ip.Interface >= len(r.Interfaces)) {
			return fmt.Errorf("ips[%d].interface is %d, there are %d interfaces", i, *ip.Interface, len(r.Interfaces))
		}
	}
	for i, rt := range r.Routes {
		if _, err := netip.ParsePrefix(rt.Dst); err != nil {
			return fmt.Errorf("routes[%d].dst %q is not a prefix", i, rt.Dst)
		}
	}
	for i, l := range r.Interfaces {
		if l.Name == "" {
			return fmt.Errorf("interfaces[%d] has no name", i)
		}
	}
	return nil
}

// missingFrom returns what is missing in a result compared with prevResult.
func missingFrom(prev, now result) []string {
	var out []string
	for _, l := range prev.Interfaces {
		if !slices.ContainsFunc(now.Interfaces, func(o resultInterface) bool {
			return o.Name == l.Name && o.Sandbox == l.Sandbox
		}) {
			out = append(out, "interface "+l.Name)
		}
	}
	for _, ip := range prev.IPs {
		if !slices.ContainsFunc(now.IPs, func(o resultIP) bool {
			return o.Address == ip.Address && o.Gateway == ip.Gateway
		}) {
			out = append(out, "address "+ip.Address)
		}
	}
	for _, r := range prev.Routes {
		if !slices.ContainsFunc(now.Routes, func(o resultRoute) bool { return o == r }) {
			out = append(out, "route "+r.Dst)
		}
	}
	return out
}
