// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"encoding/json"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// NetConf is the configuration of a network: net-conf.json, the key <prefix>/config in etcd, or a ConfigMap's.
type NetConf struct {
	Network        netip.Prefix
	IPv6Network    netip.Prefix
	EnableIPv4     bool
	EnableIPv6     bool
	EnableNFTables bool
	// SubnetLen and the limits are for subnets that are leased in etcd. 0 and the invalid address are unset; Ranges sets
	// defaults.
	SubnetLen, IPv6SubnetLen     int
	SubnetMin, SubnetMax         netip.Addr
	IPv6SubnetMin, IPv6SubnetMax netip.Addr
	Backend                      Backend
}

// ParseNetConf decodes a configuration. Warnings are about values that are valid and probably not intended; an error
// names key and value.
func ParseNetConf(text []byte) (NetConf, []model.Warning, error) {
	c := NetConf{EnableIPv4: true}
	var backend json.RawMessage
	warnings, err := decode("", text, []field{
		{"Network", &c.Network},
		{"IPv6Network", &c.IPv6Network},
		{"EnableIPv4", &c.EnableIPv4},
		{"EnableIPv6", &c.EnableIPv6},
		{"EnableNFTables", &c.EnableNFTables},
		{"SubnetLen", number{&c.SubnetLen, 0, 32}},
		{"SubnetMin", &c.SubnetMin},
		{"SubnetMax", &c.SubnetMax},
		{"IPv6SubnetLen", number{&c.IPv6SubnetLen, 0, 128}},
		{"IPv6SubnetMin", &c.IPv6SubnetMin},
		{"IPv6SubnetMax", &c.IPv6SubnetMax},
		{"Backend", &backend},
	})
	if err != nil {
		return c, warnings, err
	}
	more, err := c.families()
	warnings = append(warnings, more...)
	if err != nil {
		return c, warnings, err
	}
	if backend == nil {
		c.Backend = defaultBackend("udp")
		warnings = append(warnings, model.Warning{
			Field: "Backend", Msg: "Backend is missing: it is udp, as with flannel",
			Hint: `write "Backend": {"Type": "vxlan"} for the faster one`,
		})
		return c, warnings, nil
	}
	c.Backend, more, err = parseBackend(backend)
	return c, append(warnings, more...), err
}

// families checks the networks against the families that are on, and takes away host bits.
func (c *NetConf) families() ([]model.Warning, error) {
	if !c.EnableIPv4 && !c.EnableIPv6 {
		return nil, model.Errorf(model.CodeInvalidConf, "leave one of them on",
			"EnableIPv4 false and EnableIPv6 false leave no network")
	}
	var warnings []model.Warning
	for _, f := range []struct {
		name, example string
		prefix        *netip.Prefix
		on            bool
		v4            bool
	}{
		{"Network", `"10.244.0.0/16"`, &c.Network, c.EnableIPv4, true},
		{"IPv6Network", `"fd00:244::/56"`, &c.IPv6Network, c.EnableIPv6, false},
	} {
		p := *f.prefix
		switch {
		case p.IsValid() && p.Addr().Is4() != f.v4:
			return warnings, model.Errorf(model.CodeInvalidConf, "write for example "+f.example,
				"%s %q is of the other family", f.name, p)
		case f.on && !p.IsValid():
			return warnings, model.Errorf(model.CodeInvalidConf, "write for example "+f.example,
				"%s is missing, and the family is on", f.name)
		case f.on && p.Bits() == 0:
			return warnings, model.Errorf(model.CodeInvalidConf, "write for example "+f.example,
				"%s %q is everything there is", f.name, p)
		case !f.on && p.IsValid():
			warnings = append(warnings, model.Warning{
				Field: f.name, Msg: f.name + " is set, but its family is off", Hint: "set EnableIPv6 true, or remove it",
			})
		case p.IsValid() && p != p.Masked():
			warnings = append(warnings, model.Warning{
				Field: f.name, Msg: f.name + " " + p.String() + " has bits set behind its length",
				Hint: "it is read as " + p.Masked().String(),
			})
		}
		if p.IsValid() {
			*f.prefix = p.Masked()
		}
	}
	return warnings, nil
}

// Networks returns the prefixes of the families that are on, IPv4 first.
func (c NetConf) Networks() []netip.Prefix {
	var out []netip.Prefix
	if c.EnableIPv4 && c.Network.IsValid() {
		out = append(out, c.Network)
	}
	if c.EnableIPv6 && c.IPv6Network.IsValid() {
		out = append(out, c.IPv6Network)
	}
	return out
}

// Family reports whether a family, 4 or 6, is on.
func (c NetConf) Family(family int) bool {
	if family == 4 {
		return c.EnableIPv4
	}
	return c.EnableIPv6
}
