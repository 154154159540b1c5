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

// readFirewall parses and validates a configuration. An empty backend stays empty: it is chosen on the node.
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
			return c, model.Errorf(model.CodeInvalidConf, "choose one of "+
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

// checkNames rejects names that iptables and firewalld reject.
func (c firewallConf) checkNames() error {
	const mostChain, mostZone = 28, 17
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
	if n := c.IptablesAdminChainName; len(n) > mostChain || strings.ContainsFunc(n, odd) ||
		strings.ContainsAny(n[:1], "-!") {
		return model.Errorf(model.CodeInvalidConf, "at most 28 characters, no white space, no - or ! at the beginning",
			"plugin firewall: iptablesAdminChainName %q is not a valid chain name", n)
	}
	if slices.Contains([]string{"CNI-FORWARD", stage1, stage2, "FORWARD", "INPUT", "OUTPUT"}, c.IptablesAdminChainName) {
		return model.Errorf(model.CodeInvalidConf, "choose another name for the chain of your own rules",
			"plugin firewall: iptablesAdminChainName %q is the name of another chain", c.IptablesAdminChainName)
	}
	if z := c.FirewalldZone; len(z) > mostZone || strings.ContainsFunc(z, odd) {
		return model.Errorf(model.CodeInvalidConf, "at most 17 characters, no white space",
			"plugin firewall: firewalldZone %q is not a valid zone name", z)
	}
	return nil
}

// backend returns the configured backend. By default it is firewalld if that runs, as with the reference plugin;
// iptables if its FORWARD chain drops by default, because accept in another table does not override that; else
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

// forwardDrops reports in which variants of iptables the FORWARD chain drops by default: iptables-nft (plain), and
// iptables-legacy.
func forwardDrops(answers state.Answers, v6 bool) (plain, legacy bool) {
	family, chain := "4", "ip filter FORWARD"
	if v6 {
		family, chain = "6", "ip6 filter FORWARD"
	}
	return answers[dropped(family)].Value == chain, answers[dropped(state.LegacyForwardDrop+family)].Found
}

// unreadableLegacy returns a warning about legacy iptables tables that may drop packets and that no program on the node
// can read. Their presence in the kernel is no evidence: most accept everything.
func (c firewallConf) unreadableLegacy(answers state.Answers, addrs []netip.Addr) []model.Warning {
	var out []model.Warning
	for _, family := range []string{"4", "6"} {
		older := answers[dropped(state.LegacyForwardDrop+family)]
		ofFamily := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is6() == (family == "6") })
		if c.Backend == "" && ofFamily && !older.Found && older.Value != "" {
			out = append(out, UnreadLegacy(older.Value))
		}
	}
	return out
}

// UnreadLegacy returns the warning about a legacy iptables table that cannot be read.
func UnreadLegacy(table string) model.Warning {
	return model.Warning{
		Field: "backend",
		Msg: table +
			" of iptables-legacy is in the kernel, and no program on the node can read it: if its chain FORWARD drops, containers have no connectivity",
		Hint: "install iptables-legacy on the node, or unload iptable_filter and ip6table_filter; \"backend\": \"nftables\" accepts it as it is",
	}
}

// Ready returns an error if the configured backend is not available.
func (Firewall) Ready(in Input) error {
	c, err := decoded(in, readFirewall)
	switch {
	case err != nil:
		return err
	case c.Backend == backendFirewalld && !in.Answers[firewalld()].Found:
		return model.Errorf(model.CodeNotAvailable, "start firewalld, or leave backend out",
			"plugin firewall: backend %q: firewalld is not on the system's D-Bus", c.Backend)
	case c.Backend == backendIPTables && !in.Answers[restore()].Found:
		return model.Errorf(model.CodeNotAvailable, "install iptables on the node, or leave backend out",
			"plugin firewall: backend %q: the node has no program %s", c.Backend, restore().Program)
	}
	return nil
}

func restore() state.Query { return state.Query{Space: state.Host, Program: "iptables-restore"} }

// ReadyQueries returns the queries for the configured backend.
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

// Warnings reports settings that have no effect.
func (Firewall) Warnings(raw json.RawMessage) []model.Warning {
	var set firewallConf
	conf := model.PluginConf{Type: "firewall", Raw: raw}
	if _, err := readFirewall(conf); err != nil || decode(conf, &set) != nil {
		return nil // Decode reports it
	}
	var out []model.Warning
	if set.IptablesAdminChainName != "" && set.Backend != "" && set.Backend != backendIPTables {
		out = append(out, model.Warning{
			Field: "iptablesAdminChainName", Msg: "iptablesAdminChainName has no effect with backend " + set.Backend,
			Hint: "remove it",
		})
	}
	if set.FirewalldZone != "" && set.Backend != "" && set.Backend != backendFirewalld {
		out = append(out, model.Warning{
			Field: "firewalldZone", Msg: "firewalldZone has no effect with backend " + set.Backend, Hint: "remove it",
		})
	}
	return out
}
