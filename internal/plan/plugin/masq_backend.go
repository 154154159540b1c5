// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// masqConf are the masquerade options of several plugins.
type masqConf struct {
	on      bool
	backend *string
}

// check rejects an unknown backend.
func (c masqConf) check(conf model.PluginConf) error {
	if c.backend == nil || slices.Contains([]string{"", "nftables", "iptables"}, *c.backend) {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, `use "nftables", "iptables", or leave it out`,
		"plugin %s: ipMasqBackend %q is not known", conf.Type, *c.backend)
}

// iptables reports whether the host's iptables programs add the rules. By default weft uses nftables, which needs no
// program and works with any iptables variant on the node.
func (c masqConf) iptables() bool {
	return c.on && c.backend != nil && *c.backend == "iptables"
}

// program returns the query for the program that adds the rules of a family.
func program(v6 bool) state.Query {
	name := "iptables-restore"
	if v6 {
		name = "ip6tables-restore"
	}
	return state.Query{Space: state.Host, Program: name}
}

// queries returns the queries for the programs, if any are needed.
func (c masqConf) queries() []state.Query {
	if !c.iptables() {
		return nil
	}
	return []state.Query{program(false), program(true)}
}

// ready returns an error if masquerading cannot work.
func (c masqConf) ready(in Input) error {
	if c.iptables() && !in.Answers[program(false)].Found && !in.Answers[program(true)].Found {
		return absent(in.Conf, "iptables-restore")
	}
	return nil
}

func absent(conf model.PluginConf, name string) error {
	return model.Errorf(model.CodeInvalidConf, `install iptables, or use "nftables"`,
		"plugin %s: ipMasqBackend \"iptables\" needs the program %s, which is not on this node", conf.Type, name)
}

// plan adds the rules that masquerade the addresses to the fragment.
func (c masqConf) plan(in Input, f *state.Fragment, a addressed) error {
	if !c.on || !a.known() {
		return nil
	}
	if !c.iptables() {
		f.Host.Tables = append(f.Host.Tables, Masquerade(in.Request.Key(), a.ips))
		return nil
	}
	for _, v6 := range []bool{false, true} {
		if v6 && !a.v6 || !v6 && !a.v4 {
			continue
		}
		if q := program(v6); !in.Answers[q].Found {
			return absent(in.Conf, q.Program)
		}
		f.Host.IPTables = append(f.Host.IPTables, masqueradeChains(in.Request.Key(), a.ips, v6))
	}
	return nil
}

// masqueradeChains returns the reference plugin's chains and rules for an attachment's addresses of one family, in its
// order.
func masqueradeChains(k model.AttachmentKey, ips []model.IP, v6 bool) state.IPTables {
	multicast := "224.0.0.0/4"
	if v6 {
		multicast = "ff00::/8"
	}
	chain, comment := ChainName("", k), ownerComment(k)
	own := state.IPChain{Name: chain}
	post := state.IPChain{Name: "POSTROUTING", Shared: true}
	add := func(c *state.IPChain, format string, args ...any) {
		r := state.IPRule{Text: fmt.Sprintf(format, args...)}
		if !slices.Contains(c.Rules, r) {
			c.Rules = append(c.Rules, r)
		}
	}
	for _, ip := range ips {
		if ip.Address.Addr().Is6() != v6 {
			continue
		}
		add(&own, "-d %s %s -j ACCEPT", ip.Address.Masked(), comment)
		add(&own, "! -d %s %s -j MASQUERADE", multicast, comment)
		add(&post, "-s %s %s -j %s", full(ip.Address.Addr()), comment, chain)
	}
	return state.IPTables{IPv6: v6, Table: "nat", Chains: []state.IPChain{own, post}}
}

// ChainName returns the name of a container's iptables chain, as the reference plugins derive it: it does not depend on
// the interface. The prefix differs between the plugins.
func ChainName(prefix string, k model.AttachmentKey) string {
	const most = 28 // XT_EXTENSION_MAXNAMELEN, less the final zero
	sum := sha512.Sum512([]byte(k.Network + k.ContainerID))
	return cut("CNI-"+prefix+hex.EncodeToString(sum[:]), most)
}

// ownerComment returns the comment by which the reference plugins mark a rule's owner.
func ownerComment(k model.AttachmentKey) string {
	return fmt.Sprintf(`-m comment --comment "name: \"%s\" id: \"%s\""`, k.Network, k.ContainerID)
}
