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
	// SubnetLen and the limits are for whoever gives subnets away (etcd). 0 and the invalid address are unset; Subnets
	// fills them.
	SubnetLen, IPv6SubnetLen     int
	SubnetMin, SubnetMax         netip.Addr
	IPv6SubnetMin, IPv6SubnetMax netip.Addr
	Backend                      Backend
}

// ParseNetConf reads a configuration. The doubts are about what is allowed and hardly meant; an error names key and
// value.
func ParseNetConf(text []byte) (NetConf, []model.Doubt, error) {
	c := NetConf{EnableIPv4: true}
	var backend json.RawMessage
	doubts, err := decode("", text, []field{
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
		return c, doubts, err
	}
	more, err := c.families()
	doubts = append(doubts, more...)
	if err != nil {
		return c, doubts, err
	}
	if backend == nil {
		c.Backend = defaultBackend("udp")
		doubts = append(doubts, model.Doubt{
			Field: "Backend", Msg: "Backend is not given, so it is udp, as with flannel",
			Hint: `write "Backend": {"Type": "vxlan"} for the faster one`,
		})
		return c, doubts, nil
	}
	c.Backend, more, err = parseBackend(backend)
	return c, append(doubts, more...), err
}

// families checks the networks against the families that are on, and takes away host bits.
func (c *NetConf) families() ([]model.Doubt, error) {
	if !c.EnableIPv4 && !c.EnableIPv6 {
		return nil, model.Faultf(model.CodeInvalidConf, "leave one of them on",
			"EnableIPv4 false and EnableIPv6 false leave no network")
	}
	var doubts []model.Doubt
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
			return doubts, model.Faultf(model.CodeInvalidConf, "write for example "+f.example,
				"%s %q is of the other family", f.name, p)
		case f.on && !p.IsValid():
			return doubts, model.Faultf(model.CodeInvalidConf, "write for example "+f.example,
				"%s is missing, and the family is on", f.name)
		case f.on && p.Bits() == 0:
			return doubts, model.Faultf(model.CodeInvalidConf, "write for example "+f.example,
				"%s %q is everything there is", f.name, p)
		case !f.on && p.IsValid():
			doubts = append(doubts, model.Doubt{
				Field: f.name, Msg: f.name + " is given, but its family is off", Hint: "set EnableIPv6 true, or take it away",
			})
		case p.IsValid() && p != p.Masked():
			doubts = append(doubts, model.Doubt{
				Field: f.name, Msg: f.name + " " + p.String() + " has bits set behind its length",
				Hint: "it is read as " + p.Masked().String(),
			})
		}
		if p.IsValid() {
			*f.prefix = p.Masked()
		}
	}
	return doubts, nil
}

// Networks are the prefixes of the families that are on, IPv4 first.
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

// Family tells whether a family, 4 or 6, is on.
func (c NetConf) Family(family int) bool {
	if family == 4 {
		return c.EnableIPv4
	}
	return c.EnableIPv6
}
