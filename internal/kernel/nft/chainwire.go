// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

// Numbers of a base chain's policies.
const policyDrop, policyAccept = 0, 1

// putChain writes the message that makes a chain, or sets an existing one's policy.
func (b *batch) putChain(t *table, c lang.Chain) {
	b.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, t.Family, "make chain "+c.Name)
	b.String(unix.NFTA_CHAIN_TABLE, t.Name)
	b.String(unix.NFTA_CHAIN_NAME, c.Name)
	if !c.Base() {
		return
	}
	hook := b.Begin(unix.NFTA_CHAIN_HOOK | nested)
	n, _ := lang.HookNumber(t.Family, c.Hook) // checked when the chain was compiled
	b.BE32(unix.NFTA_HOOK_HOOKNUM, n)
	b.BE32(unix.NFTA_HOOK_PRIORITY, uint32(c.Priority))
	if c.Device != "" {
		b.String(unix.NFTA_HOOK_DEV, c.Device)
	}
	b.End(hook)
	policy := uint32(policyAccept)
	if c.Policy == "drop" {
		policy = policyDrop
	}
	b.BE32(unix.NFTA_CHAIN_POLICY, policy)
	b.String(unix.NFTA_CHAIN_TYPE, c.Type)
}

func decodeChain(family byte, body []byte) lang.Chain {
	c := lang.Chain{
		Name: netlink.String(netlink.Find(body, unix.NFTA_CHAIN_NAME)),
		Type: netlink.String(netlink.Find(body, unix.NFTA_CHAIN_TYPE)),
	}
	hook := netlink.Find(body, unix.NFTA_CHAIN_HOOK)
	if hook == nil {
		return c
	}
	c.Hook = lang.HookName(family, netlink.BE32(netlink.Find(hook, unix.NFTA_HOOK_HOOKNUM)))
	c.Priority = int32(netlink.BE32(netlink.Find(hook, unix.NFTA_HOOK_PRIORITY)))
	c.Device = netlink.String(netlink.Find(hook, unix.NFTA_HOOK_DEV))
	c.Policy = "accept"
	if p := netlink.Find(body, unix.NFTA_CHAIN_POLICY); p != nil && netlink.BE32(p) == policyDrop {
		c.Policy = "drop"
	}
	return c
}

// putRule appends a rule to its chain, or inserts it before the rule with the handle before.
func (b *batch) putRule(t *table, chainName string, r lang.Rule, before uint64) {
	flags := uint16(unix.NLM_F_CREATE)
	if before == 0 {
		flags |= unix.NLM_F_APPEND
	}
	b.message(unix.NFT_MSG_NEWRULE, flags, t.Family, "make rule \""+r.Text+"\"")
	b.String(unix.NFTA_RULE_TABLE, t.Name)
	b.String(unix.NFTA_RULE_CHAIN, chainName)
	list := b.Begin(unix.NFTA_RULE_EXPRESSIONS | nested)
	for _, e := range r.Exprs {
		b.putExpr(e)
	}
	b.End(list)
	if before != 0 {
		b.BE64(unix.NFTA_RULE_POSITION, before)
	}
	if r.Comment != "" {
		b.Attr(unix.NFTA_RULE_USERDATA, comment(r.Comment))
	}
}

// dropRule deletes one rule, or with handle 0 all rules of the chain.
func (b *batch) dropRule(t *table, chainName string, handle uint64) {
	b.message(unix.NFT_MSG_DELRULE, 0, t.Family, "delete rules of "+chainName)
	b.String(unix.NFTA_RULE_TABLE, t.Name)
	b.String(unix.NFTA_RULE_CHAIN, chainName)
	if handle != 0 {
		b.BE64(unix.NFTA_RULE_HANDLE, handle)
	}
}

func decodeRule(family byte, body []byte) lang.Rule {
	r := lang.Rule{
		Exprs:   decodeExprs(netlink.Find(body, unix.NFTA_RULE_EXPRESSIONS)),
		Handle:  netlink.BE64(netlink.Find(body, unix.NFTA_RULE_HANDLE)),
		Comment: commentIn(netlink.Find(body, unix.NFTA_RULE_USERDATA)),
	}
	r.Text = lang.Decompile(family, r.Exprs)
	return r
}

func (b *batch) putTable(t *table) {
	b.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, t.Family, "make table "+t.Label())
	b.String(unix.NFTA_TABLE_NAME, t.Name)
	if t.Volatile {
		b.BE32(unix.NFTA_TABLE_FLAGS, tableOwner)
	}
}

func (b *batch) dropTable(t *table) {
	b.message(unix.NFT_MSG_DELTABLE, 0, t.Family, "delete table "+t.Label())
	b.String(unix.NFTA_TABLE_NAME, t.Name)
}

func (b *batch) dropChain(t *table, name string) {
	b.message(unix.NFT_MSG_DELCHAIN, 0, t.Family, "delete chain "+name)
	b.String(unix.NFTA_CHAIN_TABLE, t.Name)
	b.String(unix.NFTA_CHAIN_NAME, name)
}

func (b *batch) dropSet(t *table, name string) {
	b.message(unix.NFT_MSG_DELSET, 0, t.Family, "delete set "+name)
	b.String(unix.NFTA_SET_TABLE, t.Name)
	b.String(unix.NFTA_SET_NAME, name)
}
