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

// These words stand for the node's own prefixes where host-local wants a subnet, in any case.
const podPrefix4, podPrefix6 = "usePodCidr", "usePodCidrIPv6"

// WantsPrefixes tells whether one of the words that stand for the node's prefixes may be in a configuration.
func (Calico) WantsPrefixes(conf model.PluginConf) bool {
	return bytes.Contains(bytes.ToLower(conf.Raw), []byte(strings.ToLower(podPrefix4)))
}

// WithPrefixes puts the node's prefixes in the place of the words that stand for them.
func (Calico) WithPrefixes(conf model.PluginConf, prefixes []netip.Prefix) (model.PluginConf, error) {
	fill := filling{conf: conf, prefixes: prefixes}
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
		return conf, model.Faultf(model.CodeInternal, "", "plugin calico: ipam: %w", err)
	}
	raw, err := json.Marshal(top)
	if err != nil {
		return conf, model.Faultf(model.CodeInternal, "", "plugin calico: %w", err)
	}
	return model.PluginConf{Type: conf.Type, Capabilities: conf.Capabilities, Raw: raw}, nil
}

// filling is one WithPrefixes under way.
type filling struct {
	conf     model.PluginConf
	prefixes []netip.Prefix
}

func (f filling) object(key string, raw json.RawMessage) (map[string]json.RawMessage, error) {
	if key == "configuration" {
		key = ""
	}
	fields := map[string]json.RawMessage{}
	if raw == nil {
		return fields, nil
	}
	return fields, decodeAt(f.conf, key, raw, &fields)
}

// ranges is host-local's list of lists.
func (f filling) ranges(raw json.RawMessage) (json.RawMessage, error) {
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
		return nil, model.Faultf(model.CodeInternal, "", "plugin calico: ipam.ranges: %w", err)
	}
	return out, nil
}

func (f filling) subnet(key string, fields map[string]json.RawMessage) error {
	var word string
	if json.Unmarshal(fields["subnet"], &word) != nil {
		return nil // host-local says what is wrong with it
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
		return model.Faultf(
			model.CodeTryAgain, "give the Node object podCIDRs (kube-controller-manager --allocate-node-cidrs)",
			"plugin calico: %s %q: this node has no %s prefix", key, word, family)
	}
	fields["subnet"] = json.RawMessage(`"` + f.prefixes[i].Masked().String() + `"`)
	return nil
}
