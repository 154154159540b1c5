// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"cmp"
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// Ruleset reads the chains of other programs that packets of a family (4 or 6) meet, with their rules: tables of the
// families ip or ip6, inet, bridge and netdev. weft's own tables are left out.
func (c *Conn) Ruleset(ctx context.Context, family int) ([]state.RulesetChain, error) {
	own := byte(unix.NFPROTO_IPV4)
	if family == 6 {
		own = unix.NFPROTO_IPV6
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []state.RulesetChain
	err := retryStale(ctx, func() (stale bool, err error) {
		gen, err := c.wire.generation()
		if err != nil {
			return false, err
		}
		if out, err = c.reader.readRuleset(own); err != nil {
			return false, err
		}
		after, err := c.wire.generation()
		return err == nil && after != gen, err
	})
	return out, err
}

// readRuleset reads the chains of the family own, and of those that have packets of both.
func (r *reader) readRuleset(own byte) ([]state.RulesetChain, error) {
	type place struct {
		family byte
		table  string
		chain  string
	}
	var out []state.RulesetChain
	at := map[place]int{}
	err := r.wire.dump(r.wire.question(unix.NFT_MSG_GETCHAIN, 0, "list chains"), func(family byte, body []byte) {
		table := netlink.String(netlink.Find(body, unix.NFTA_CHAIN_TABLE))
		switch family {
		case own, unix.NFPROTO_INET, unix.NFPROTO_BRIDGE, unix.NFPROTO_NETDEV:
		default:
			return
		}
		if owned(table) {
			return
		}
		ch := decodeChain(family, body)
		at[place{family, table, ch.Name}] = len(out)
		out = append(out, state.RulesetChain{
			Family: lang.FamilyName(family), Table: table, Name: ch.Name, Hook: ch.Hook, Type: ch.Type,
			Devices: devices(body), Priority: int(ch.Priority), Policy: ch.Policy,
		})
	})
	if err != nil {
		return nil, err
	}
	err = r.wire.dump(r.wire.question(unix.NFT_MSG_GETRULE, 0, "list rules"), func(family byte, body []byte) {
		i, ok := at[place{
			family, netlink.String(netlink.Find(body, unix.NFTA_RULE_TABLE)),
			netlink.String(netlink.Find(body, unix.NFTA_RULE_CHAIN)),
		}]
		if ok {
			out[i].Rules = append(out[i].Rules, rulesetRule(family, body))
		}
	})
	return out, err
}

// Attributes of chains that golang.org/x/sys/unix lacks; prefixes are there since Linux 6.16.
const (
	hookDevices  = 4 // NFTA_HOOK_DEVS
	devicePrefix = 2 // NFTA_DEVICE_PREFIX
)

// devices returns the interfaces of a chain at ingress or egress.
func devices(chain []byte) (out []string) {
	hook := netlink.Find(chain, unix.NFTA_CHAIN_HOOK)
	for kind, name := range netlink.Attrs(netlink.Find(hook, hookDevices)) {
		text := netlink.String(name)
		if kind == devicePrefix {
			text += "*"
		}
		out = append(out, text)
	}
	return out
}

// rulesetRule describes a rule. Of one outside of weft's language the clauses that are in it are understood, and what it
// does with packets: "rewrite" stands for a changed header, "decides" for what cannot be read.
func rulesetRule(family byte, body []byte) state.RulesetRule {
	r := decodeRule(family, body)
	if r.Text != lang.ForeignRule {
		return state.RulesetRule{Handle: r.Handle, Text: r.Text}
	}
	text, does := lang.DecompileKnown(family, r.Exprs), ""
	for _, e := range r.Exprs {
		does = cmp.Or(expressionDoes(e), does)
	}
	for _, item := range netlink.Attrs(netlink.Find(body, unix.NFTA_RULE_EXPRESSIONS)) {
		if netlink.String(netlink.Find(item, unix.NFTA_EXPR_NAME)) == "target" {
			const name = 1 // NFTA_TARGET_NAME
			does = targetDoes(netlink.String(netlink.Find(netlink.Find(item, unix.NFTA_EXPR_DATA), name)))
		}
	}
	if does != "" && !strings.HasSuffix(text, does) {
		text = strings.TrimSpace(text + " … " + does)
	}
	return state.RulesetRule{Handle: r.Handle, Text: text, Partial: true}
}

// expressionDoes returns what an expression does with packets, "" for one that only compares, counts or marks.
func expressionDoes(e lang.Expr) string {
	switch e.Name {
	case "immediate":
		if e.Verdict != nil {
			return e.Verdict.String()
		}
	case "payload":
		// Fields before the addresses of an IP header are changed on purpose (DSCP, ECN, TTL).
		if e.Sreg != 0 && (e.Key == unix.NFT_PAYLOAD_TRANSPORT_HEADER || e.Size >= 4) {
			return "rewrite"
		}
	case "lookup":
		if e.Dreg < 0 { // a map of verdicts
			return "decides"
		}
	case "reject", "notrack", "queue":
		return e.Name
	case "masq":
		return "masquerade"
	case "nat", "redir":
		return "dnat"
	case "tproxy", "synproxy", "fwd", "dup", "flow_offload":
		return "decides"
	}
	return ""
}

// targetDoes returns what a target of iptables does with packets.
func targetDoes(target string) string {
	switch target {
	case "REJECT":
		return "reject"
	case "MASQUERADE", "SNAT":
		return "masquerade"
	case "DNAT", "REDIRECT":
		return "dnat"
	case "NOTRACK":
		return "notrack"
	case "LOG", "NFLOG", "MARK", "CONNMARK", "TCPMSS", "CLASSIFY", "DSCP", "TOS", "CHECKSUM", "SET", "TRACE", "AUDIT":
		return ""
	}
	return "decides" // CT, NFQUEUE, TPROXY, and those that are not known
}
