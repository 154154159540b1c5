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

// The backends and policies of a firewall.
const (
	backendNFTables  = "nftables"
	backendIPTables  = "iptables"
	backendFirewalld = "firewalld"

	policyOpen       = "open"
	policySameBridge = "same-bridge"
	policyIsolated   = "isolated"
)

type firewallConf struct {
	Backend                string `json:"backend"`
	IptablesAdminChainName string `json:"iptablesAdminChainName"`
	FirewalldZone          string `json:"firewalldZone"`
	IngressPolicy          string `json:"ingressPolicy"`
}

// readFirewall reads and checks a configuration. An empty backend is left empty: it depends on the node.
func readFirewall(conf model.PluginConf) (firewallConf, error) {
	var c firewallConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	for _, o := range []struct {
		key     string
		value   *string
		unset   string
		allowed []string
	}{
		{"backend", &c.Backend, "", []string{"", backendNFTables, backendIPTables, backendFirewalld}},
		{"ingressPolicy", &c.IngressPolicy, policyOpen, []string{policyOpen, policySameBridge, policyIsolated}},
	} {
		if *o.value == "" {
			*o.value = o.unset
		}
		if !slices.Contains(o.allowed, *o.value) {
			return c, model.Faultf(model.CodeInvalidConf, "choose one of "+
				strings.Join(slices.DeleteFunc(o.allowed, empty), ", "),
				"plugin firewall: %s %q is unknown", o.key, *o.value)
		}
	}
	if c.IptablesAdminChainName == "" {
		c.IptablesAdminChainName = "CNI-ADMIN"
	}
	if c.FirewalldZone == "" {
		c.FirewalldZone = "trusted"
	}
	return c, c.checkNames()
}

func empty(s string) bool { return s == "" }

// checkNames refuses what iptables and firewalld do not take.
func (c firewallConf) checkNames() error {
	const mostChain, mostZone = 28, 17
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
	if n := c.IptablesAdminChainName; len(n) > mostChain || strings.ContainsFunc(n, odd) ||
		strings.ContainsAny(n[:1], "-!") {
		return model.Faultf(model.CodeInvalidConf, "at most 28 characters, no white space, no - or ! at the beginning",
			"plugin firewall: iptablesAdminChainName %q cannot be a chain's name", n)
	}
	if slices.Contains([]string{"CNI-FORWARD", stage1, stage2, "FORWARD", "INPUT", "OUTPUT"}, c.IptablesAdminChainName) {
		return model.Faultf(model.CodeInvalidConf, "choose another name for the chain of your own rules",
			"plugin firewall: iptablesAdminChainName %q is another chain's name", c.IptablesAdminChainName)
	}
	if z := c.FirewalldZone; len(z) > mostZone || strings.ContainsFunc(z, odd) {
		return model.Faultf(model.CodeInvalidConf, "at most 17 characters, no white space",
			"plugin firewall: firewalldZone %q cannot be a zone's name", z)
	}
	return nil
}

// backend is the wanted one. Where none is named: firewalld where it runs, as the reference plugin has it; iptables
// where its FORWARD chain drops what it does not accept, since no other table's accept counts against that; else
// nftables.
func (c firewallConf) backend(answers state.Answers, addrs []netip.Addr) string {
	if c.Backend != "" {
		return c.Backend
	}
	if answers[firewalld()].Found {
		return backendFirewalld
	}
	for _, a := range addrs {
		if plain, legacy := forwardDrops(answers, a.Is6()); plain || legacy {
			return backendIPTables
		}
	}
	return backendNFTables
}

// forwardDrops tells in which kinds of iptables the FORWARD chain drops what it does not accept: that of nft, and the
// older one.
func forwardDrops(answers state.Answers, v6 bool) (plain, legacy bool) {
	family, chain := "4", "ip filter FORWARD"
	if v6 {
		family, chain = "6", "ip6 filter FORWARD"
	}
	return answers[dropped(family)].Value == chain, answers[dropped(state.LegacyDropped+family)].Found
}

// unread tells of iptables of the older kind that may drop and that nobody can read. That they are in the kernel is no
// proof: most of them accept everything.
func (c firewallConf) unread(answers state.Answers, addrs []netip.Addr) []model.Doubt {
	var out []model.Doubt
	for _, family := range []string{"4", "6"} {
		older := answers[dropped(state.LegacyDropped+family)]
		ofFamily := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is6() == (family == "6") })
		if c.Backend == "" && ofFamily && !older.Found && older.Value != "" {
			out = append(out, UnreadLegacy(older.Value))
		}
	}
	return out
}

// UnreadLegacy tells of a table of the older iptables that nobody can read.
func UnreadLegacy(table string) model.Doubt {
	return model.Doubt{
		Field: "backend",
		Msg: table +
			" of the older kind is in the kernel, and no program on the node reads it: if its chain FORWARD drops, containers are cut off",
		Hint: "install iptables-legacy on the node, or unload iptable_filter and ip6table_filter; \"backend\": \"nftables\" accepts it as it is",
	}
}

// Ready tells whether the backend is there that is asked for.
func (Firewall) Ready(in Input) error {
	c, err := decoded(in, readFirewall)
	switch {
	case err != nil:
		return err
	case c.Backend == backendFirewalld && !in.Answers[firewalld()].Found:
		return model.Faultf(model.CodeNotAvailable, "start firewalld, or leave backend out",
			"plugin firewall: backend %q: firewalld is not on the system's D-Bus", c.Backend)
	case c.Backend == backendIPTables && !in.Answers[restore()].Found:
		return model.Faultf(model.CodeNotAvailable, "install iptables on the node, or leave backend out",
			"plugin firewall: backend %q: the node has no program %s", c.Backend, restore().Program)
	}
	return nil
}

func restore() state.Query { return state.Query{Space: state.Host, Program: "iptables-restore"} }

// ReadyQueries asks for the backend that is asked for.
func (Firewall) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readFirewall)
	switch {
	case err != nil:
		return nil
	case c.Backend == backendFirewalld:
		return []state.Query{firewalld()}
	case c.Backend == backendIPTables:
		return []state.Query{restore()}
	}
	return nil
}

// Doubts finds settings that have no effect.
func (Firewall) Doubts(raw json.RawMessage) []model.Doubt {
	var set firewallConf
	conf := model.PluginConf{Type: "firewall", Raw: raw}
	if _, err := readFirewall(conf); err != nil || decode(conf, &set) != nil {
		return nil // Decode says it
	}
	var out []model.Doubt
	if set.IptablesAdminChainName != "" && set.Backend != "" && set.Backend != backendIPTables {
		out = append(out, model.Doubt{
			Field: "iptablesAdminChainName", Msg: "iptablesAdminChainName has no effect with backend " + set.Backend,
			Hint: "remove it",
		})
	}
	if set.FirewalldZone != "" && set.Backend != "" && set.Backend != backendFirewalld {
		out = append(out, model.Doubt{
			Field: "firewalldZone", Msg: "firewalldZone has no effect with backend " + set.Backend, Hint: "remove it",
		})
	}
	return out
}
