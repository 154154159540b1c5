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

// masqConf are the options of masquerading, which several plugins have.
type masqConf struct {
	on      bool
	backend *string
}

// check refuses a backend that nobody has.
func (c masqConf) check(conf model.PluginConf) error {
	if c.backend == nil || slices.Contains([]string{"", "nftables", "iptables"}, *c.backend) {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, `use "nftables", "iptables", or leave it out`,
		"plugin %s: ipMasqBackend %q is not known", conf.Type, *c.backend)
}

// iptables tells whether the rules are to be made by the host's iptables programs. Without being told, weft uses nft:
// it needs no program and works beside whichever iptables the node has.
func (c masqConf) iptables() bool {
	return c.on && c.backend != nil && *c.backend == "iptables"
}

// program is the query for the program that writes one family's rules.
func program(v6 bool) state.Query {
	name := "iptables-restore"
	if v6 {
		name = "ip6tables-restore"
	}
	return state.Query{Space: state.Host, Program: name}
}

// queries asks for the programs, where any are needed.
func (c masqConf) queries() []state.Query {
	if !c.iptables() {
		return nil
	}
	return []state.Query{program(false), program(true)}
}

// ready tells whether masquerading could work at all.
func (c masqConf) ready(in Input) error {
	if c.iptables() && !in.Answers[program(false)].Found && !in.Answers[program(true)].Found {
		return absent(in.Conf, "iptables-restore")
	}
	return nil
}

func absent(conf model.PluginConf, name string) error {
	return model.Faultf(model.CodeInvalidConf, `install iptables, or use "nftables"`,
		"plugin %s: ipMasqBackend \"iptables\" needs the program %s, which this machine does not have", conf.Type, name)
}

// plan adds what masquerades the addresses to the fragment.
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

// masqueradeChains are the reference plugin's chains and rules for an attachment's addresses of one family, in its
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

// ChainName is the name of a container's chain of iptables, as the reference plugins make it: the interface does not
// count. The prefix tells their plugins apart.
func ChainName(prefix string, k model.AttachmentKey) string {
	const most = 28 // XT_EXTENSION_MAXNAMELEN, less the final zero
	sum := sha512.Sum512([]byte(k.Network + k.ContainerID))
	return cut("CNI-"+prefix+hex.EncodeToString(sum[:]), most)
}

// ownerComment says in a rule of iptables whose it is, in the reference plugins' words.
func ownerComment(k model.AttachmentKey) string {
	return fmt.Sprintf(`-m comment --comment "name: \"%s\" id: \"%s\""`, k.Network, k.ContainerID)
}
