// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// These are the bits of a packet's mark that, without markMasqBit, mark connections to a hostPort. Kubernetes uses 14
// and 15. With iptables it is the reference plugin's bit, whose masquerade rule is never removed from a node.
const (
	iptablesBit = 13
	nftBit      = 12
)

type portmapConf struct {
	Backend              *string   `json:"backend"`
	SNATOption           *bool     `json:"snat"`
	ConditionsV4         *[]string `json:"conditionsV4"`
	ConditionsV6         *[]string `json:"conditionsV6"`
	MasqAll              bool      `json:"masqAll"`
	MarkMasqBit          *int      `json:"markMasqBit"`
	ExternalSetMarkChain *string   `json:"externalSetMarkChain"`
	RuntimeConfig        struct {
		PortMappings []portMapping `json:"portMappings"`
	} `json:"runtimeConfig"`

	// Derived from the keys above.
	SNAT     bool       `json:"-"`
	backend  string     // nftables or iptables
	bit      int        // of the mark
	mappings []hostPort // validated, in the caller's order
}

type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// hostPort is a mapping. Without an address it applies to every address of the node, of both families unless hostIP has
// a family.
type hostPort struct {
	proto  string
	at     netip.Addr
	v4, v6 bool
	port   uint16
	to     uint16
}

// of reports whether the mapping applies to the address's family.
func (h hostPort) of(a netip.Addr) bool { return a.Is4() && h.v4 || a.Is6() && h.v6 }

// readPortmap parses and validates a configuration.
func readPortmap(conf model.PluginConf) (portmapConf, error) {
	var c portmapConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	c.SNAT = c.SNATOption == nil || *c.SNATOption
	if c.MarkMasqBit != nil && c.ExternalSetMarkChain != nil {
		return c, model.Errorf(model.CodeInvalidConf, "leave one of them out",
			"plugin %s: markMasqBit %d contradicts externalSetMarkChain %q", conf.Type, *c.MarkMasqBit, *c.ExternalSetMarkChain)
	}
	if err := c.readBackend(conf); err != nil {
		return c, err
	}
	c.bit = nftBit
	if c.backend == backendIPTables {
		c.bit = iptablesBit
	}
	if c.MarkMasqBit != nil {
		c.bit = *c.MarkMasqBit
	}
	if c.bit < 0 || c.bit > 31 {
		return c, model.Errorf(model.CodeInvalidConf, "a mark has the bits 0 to 31",
			"plugin %s: markMasqBit %d is not between 0 and 31",
			conf.Type, c.bit)
	}
	return c, c.readMappings(conf)
}

// readBackend chooses the backend: nftables, unless an option requires iptables.
func (c *portmapConf) readBackend(conf model.PluginConf) error {
	const hint = "leave backend out, or write the option for that backend"
	if c.Backend != nil && *c.Backend != backendNFTables && *c.Backend != backendIPTables {
		return model.Errorf(model.CodeInvalidConf, "choose one of nftables, iptables", "plugin %s: backend %q is unknown",
			conf.Type, *c.Backend)
	}
	wrote := map[string]string{} // the option that requires the backend
	if e := c.ExternalSetMarkChain; e != nil {
		if err := checkChainName(conf, *e); err != nil {
			return err
		}
		wrote[backendIPTables] = "externalSetMarkChain"
	}
	for _, o := range []struct {
		key   string
		value *[]string
	}{{"conditionsV4", c.ConditionsV4}, {"conditionsV6", c.ConditionsV6}} {
		words := conditions(o.value)
		if len(words) == 0 {
			continue
		}
		if strings.HasPrefix(words[0], "-") || strings.HasPrefix(words[0], "!") {
			wrote[backendIPTables] = o.key
			if err := checkArguments(conf, o.key, words); err != nil {
				return err
			}
			continue
		}
		wrote[backendNFTables] = o.key
		if err := checkMatches(conf, o.key, words); err != nil {
			return err
		}
	}
	if wrote[backendNFTables] != "" && wrote[backendIPTables] != "" {
		return model.Errorf(model.CodeInvalidConf, "write both in the syntax of nft, or of iptables",
			"plugin %s: %s is written for nftables, %s for iptables", conf.Type, wrote[backendNFTables], wrote[backendIPTables])
	}
	c.backend = backendNFTables
	if wrote[backendIPTables] != "" {
		c.backend = backendIPTables
	}
	if c.Backend == nil || *c.Backend == c.backend {
		return nil
	}
	if key := wrote[c.backend]; key != "" {
		return model.Errorf(model.CodeInvalidConf, hint, "plugin %s: %s is for %s, and backend is %q", conf.Type, key,
			c.backend, *c.Backend)
	}
	c.backend = *c.Backend
	return nil
}

// conditions returns the arguments of an option; a single empty argument is none.
func conditions(option *[]string) []string {
	if option == nil || len(*option) == 0 || (*option)[0] == "" {
		return nil
	}
	return *option
}

// checkArguments rejects invalid iptables arguments.
func checkArguments(conf model.PluginConf, key string, words []string) error {
	for i, w := range words {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return model.Errorf(model.CodeInvalidConf, "one iptables argument in each string",
				"plugin %s: %s[%d] %q is not an argument", conf.Type, key, i, w)
		}
		if slices.Contains([]string{"-j", "--jump", "-g", "--goto", "-A", "-I", "-D", "-t"}, w) {
			return model.Errorf(model.CodeInvalidConf, "a condition is a match", "plugin %s: %s[%d] %q is not a condition",
				conf.Type, key, i, w)
		}
	}
	return nil
}

// checkMatches rejects nft statements other than matches.
func checkMatches(conf model.PluginConf, key string, words []string) error {
	statements := []string{
		"accept", "drop", "return", "continue", "jump", "goto", "reject", "masquerade", "dnat", "snat", "set",
		"vmap", "notrack",
	}
	for i, s := range words {
		for w := range strings.FieldsSeq(s) {
			if slices.Contains(statements, w) {
				return model.Errorf(model.CodeInvalidConf, "a condition is a match", "plugin %s: %s[%d] %q is not a condition",
					conf.Type, key, i, s)
			}
		}
	}
	return nil
}

// checkChainName rejects invalid names of iptables chains.
func checkChainName(conf model.PluginConf, name string) error {
	const most = 28
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
	if name == "" || len(name) > most || strings.ContainsFunc(name, odd) || strings.ContainsAny(name[:1], "-!") {
		return model.Errorf(model.CodeInvalidConf, "1 to 28 characters, no white space, no - or ! at the beginning",
			"plugin %s: externalSetMarkChain %q is not a valid chain name", conf.Type, name)
	}
	return nil
}

// readMappings validates the mappings, and rejects two mappings of the same port.
func (c *portmapConf) readMappings(conf model.PluginConf) error {
	for i, m := range c.RuntimeConfig.PortMappings {
		h, err := m.read(conf, i)
		if err != nil {
			return err
		}
		for _, other := range c.mappings {
			if other.overlaps(h) && other.to != h.to {
				return model.Errorf(model.CodeInvalidConf, "map it once",
					"plugin %s: runtimeConfig.portMappings[%d]: hostPort %d/%s is already mapped to containerPort %d", conf.Type, i,
					h.port, h.proto, other.to)
			}
		}
		if slices.ContainsFunc(c.mappings, func(o hostPort) bool { return o.covers(h) }) {
			continue
		}
		c.mappings = append(slices.DeleteFunc(c.mappings, h.covers), h)
	}
	return nil
}

func (h hostPort) samePort(o hostPort) bool { return h.proto == o.proto && h.port == o.port }

// overlaps reports whether a packet can match both mappings.
func (h hostPort) overlaps(o hostPort) bool {
	return h.samePort(o) && (h.v4 && o.v4 || h.v6 && o.v6) && (!h.at.IsValid() || !o.at.IsValid() || h.at == o.at)
}

// covers reports whether every packet that matches o matches h.
func (h hostPort) covers(o hostPort) bool {
	return h.samePort(o) && (h.v4 || !o.v4) && (h.v6 || !o.v6) && (!h.at.IsValid() || h.at == o.at)
}

func (m portMapping) read(conf model.PluginConf, i int) (hostPort, error) {
	h := hostPort{proto: strings.ToLower(m.Protocol), v4: true, v6: true}
	bad := func(hint, format string, args ...any) (hostPort, error) {
		return h, model.Errorf(model.CodeInvalidConf, hint, "plugin %s: runtimeConfig.portMappings[%d]: "+format,
			append([]any{conf.Type, i}, args...)...)
	}
	const most = 65535
	switch {
	case m.HostPort < 1 || m.HostPort > most:
		return bad("", "hostPort %d is not between 1 and 65535", m.HostPort)
	case m.ContainerPort < 1 || m.ContainerPort > most:
		return bad("", "containerPort %d is not between 1 and 65535", m.ContainerPort)
	case !slices.Contains([]string{"tcp", "udp", "sctp"}, h.proto):
		return bad("choose one of tcp, udp, sctp", "protocol %q is unknown", m.Protocol)
	}
	h.port, h.to = uint16(m.HostPort), uint16(m.ContainerPort)
	if m.HostIP == "" {
		return h, nil
	}
	ip, err := netip.ParseAddr(m.HostIP)
	if err != nil || ip.Zone() != "" {
		return bad("leave it out for all addresses of the node", "hostIP %q is not an address", m.HostIP)
	}
	ip = ip.Unmap()
	if ip == netip.IPv6Loopback() {
		return bad("use 127.0.0.1", "hostIP %s cannot be mapped: the kernel drops replies to it from another interface", ip)
	}
	h.v4, h.v6 = ip.Is4(), ip.Is6()
	if !ip.IsUnspecified() {
		h.at = ip
	}
	return h, nil
}

// mappingsFor returns the mappings of an address's family.
func (c portmapConf) mappingsFor(a netip.Addr) []hostPort {
	var out []hostPort
	for _, h := range c.mappings {
		if h.of(a) {
			out = append(out, h)
		}
	}
	return out
}

// ReadyQueries returns the queries for the iptables programs, if the backend is iptables.
func (Portmap) ReadyQueries(in Input) []state.Query {
	if c, err := decoded(in, readPortmap); err != nil || c.backend != backendIPTables {
		return nil
	}
	return []state.Query{program(false), program(true)}
}

// Ready returns an error if ports cannot be mapped.
func (Portmap) Ready(in Input) error {
	c, err := decoded(in, readPortmap)
	if err != nil || c.backend != backendIPTables || in.Answers[program(false)].Found || in.Answers[program(true)].Found {
		return err
	}
	return absentProgram(in.Conf, program(false).Program)
}

// Warnings reports settings that have no effect.
func (Portmap) Warnings(raw json.RawMessage) []model.Warning {
	c, err := readPortmap(model.PluginConf{Type: "portmap", Raw: raw})
	if err != nil || c.SNAT {
		return nil // Decode reports it
	}
	var out []model.Warning
	for _, o := range []struct {
		on  bool
		key string
	}{
		{c.MasqAll, "masqAll"},
		{c.MarkMasqBit != nil, "markMasqBit"},
		{c.ExternalSetMarkChain != nil, "externalSetMarkChain"},
	} {
		if o.on {
			out = append(out, model.Warning{
				Field: o.key, Msg: o.key + " has no effect with snat false", Hint: "remove it, or snat",
			})
		}
	}
	return out
}
