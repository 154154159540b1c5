// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// podPrefix4 and podPrefix6 are the values of a host-local subnet that refer to the node's pod CIDRs, in any case.
const podPrefix4, podPrefix6 = "usePodCidr", "usePodCidrIPv6"

// WantsPrefixes reports whether a configuration may refer to the node's pod CIDRs.
func (Calico) WantsPrefixes(conf model.PluginConf) bool {
	return bytes.Contains(bytes.ToLower(conf.Raw), []byte(strings.ToLower(podPrefix4)))
}

// WithPrefixes replaces the references to the node's pod CIDRs by the prefixes.
func (Calico) WithPrefixes(conf model.PluginConf, prefixes []netip.Prefix) (model.PluginConf, error) {
	fill := prefixFiller{conf: conf, prefixes: prefixes}
	top, err := fill.object("configuration", conf.Raw)
	if err != nil {
		return conf, err
	}
	ipam, err := fill.object("ipam", top["ipam"])
	if err != nil {
		return conf, err
	}
	if err := fill.subnet("ipam.subnet", ipam); err != nil {
		return conf, err
	}
	if ipam["ranges"] != nil {
		if ipam["ranges"], err = fill.ranges(ipam["ranges"]); err != nil {
			return conf, err
		}
	}
	if top["ipam"], err = json.Marshal(ipam); err != nil {
		return conf, model.Errorf(model.CodeInternal, "", "plugin calico: ipam: %w", err)
	}
	raw, err := json.Marshal(top)
	if err != nil {
		return conf, model.Errorf(model.CodeInternal, "", "plugin calico: %w", err)
	}
	return model.PluginConf{Type: conf.Type, Capabilities: conf.Capabilities, Raw: raw}, nil
}

// prefixFiller is the state of one WithPrefixes call.
type prefixFiller struct {
	conf     model.PluginConf
	prefixes []netip.Prefix
}

func (f prefixFiller) object(key string, raw json.RawMessage) (map[string]json.RawMessage, error) {
	if key == "configuration" {
		key = ""
	}
	fields := map[string]json.RawMessage{}
	if raw == nil {
		return fields, nil
	}
	return fields, decodeAt(f.conf, key, raw, &fields)
}

// ranges fills host-local's list of lists of ranges.
func (f prefixFiller) ranges(raw json.RawMessage) (json.RawMessage, error) {
	var sets [][]map[string]json.RawMessage
	if err := decodeAt(f.conf, "ipam.ranges", raw, &sets); err != nil {
		return nil, err
	}
	for _, set := range sets {
		for _, r := range set {
			if err := f.subnet("ipam.ranges[][].subnet", r); err != nil {
				return nil, err
			}
		}
	}
	out, err := json.Marshal(sets)
	if err != nil {
		return nil, model.Errorf(model.CodeInternal, "", "plugin calico: ipam.ranges: %w", err)
	}
	return out, nil
}

func (f prefixFiller) subnet(key string, fields map[string]json.RawMessage) error {
	var word string
	if json.Unmarshal(fields["subnet"], &word) != nil {
		return nil // host-local reports what is invalid
	}
	var is func(netip.Addr) bool
	family := "IPv4"
	switch {
	case strings.EqualFold(word, podPrefix4):
		is = netip.Addr.Is4
	case strings.EqualFold(word, podPrefix6):
		is, family = netip.Addr.Is6, "IPv6"
	default:
		return nil
	}
	i := slices.IndexFunc(f.prefixes, func(p netip.Prefix) bool { return is(p.Addr()) })
	if i < 0 {
		return model.Errorf(
			model.CodeTryAgain, "give the Node object podCIDRs (kube-controller-manager --allocate-node-cidrs)",
			"plugin calico: %s %q: this node has no %s pod CIDR", key, word, family)
	}
	fields["subnet"] = json.RawMessage(`"` + f.prefixes[i].Masked().String() + `"`)
	return nil
}
