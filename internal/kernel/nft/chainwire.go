// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"golang.org/x/sys/unix"
)

// Verdicts as a base chain's policy.
const policyDrop, policyAccept = 0, 1

// putChain writes the message that makes a chain, or gives an old one its policy.
func (b *batch) putChain(t *table, c chain) {
	b.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, t.family, "make chain "+c.name)
	b.str(unix.NFTA_CHAIN_TABLE, t.name)
	b.str(unix.NFTA_CHAIN_NAME, c.name)
	if !c.base() {
		return
	}
	hook := b.nest(unix.NFTA_CHAIN_HOOK)
	n, _ := hookNumber(t.family, c.hook) // checked when the chain was compiled
	b.u32(unix.NFTA_HOOK_HOOKNUM, n)
	b.u32(unix.NFTA_HOOK_PRIORITY, uint32(c.prio))
	if c.device != "" {
		b.str(unix.NFTA_HOOK_DEV, c.device)
	}
	b.end(hook)
	policy := uint32(policyAccept)
	if c.policy == "drop" {
		policy = policyDrop
	}
	b.u32(unix.NFTA_CHAIN_POLICY, policy)
	b.str(unix.NFTA_CHAIN_TYPE, c.kind)
}

func decodeChain(family byte, body []byte) chain {
	c := chain{name: cstr(findAttr(body, unix.NFTA_CHAIN_NAME)), kind: cstr(findAttr(body, unix.NFTA_CHAIN_TYPE))}
	hook := findAttr(body, unix.NFTA_CHAIN_HOOK)
	if hook == nil {
		return c
	}
	c.hook = hookName(family, beU32(findAttr(hook, unix.NFTA_HOOK_HOOKNUM)))
	c.prio = int32(beU32(findAttr(hook, unix.NFTA_HOOK_PRIORITY)))
	c.device = cstr(findAttr(hook, unix.NFTA_HOOK_DEV))
	c.policy = "accept"
	if p := findAttr(body, unix.NFTA_CHAIN_POLICY); p != nil && beU32(p) == policyDrop {
		c.policy = "drop"
	}
	return c
}

// putRule appends a rule to its chain, or with before puts it in front of the rule with that handle.
func (b *batch) putRule(t *table, chainName string, r rule, before uint64) {
	flags := uint16(unix.NLM_F_CREATE)
	if before == 0 {
		flags |= unix.NLM_F_APPEND
	}
	b.message(unix.NFT_MSG_NEWRULE, flags, t.family, "make rule \""+r.text+"\"")
	b.str(unix.NFTA_RULE_TABLE, t.name)
	b.str(unix.NFTA_RULE_CHAIN, chainName)
	list := b.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, e := range r.exprs {
		b.putExpr(e)
	}
	b.end(list)
	if before != 0 {
		b.u64(unix.NFTA_RULE_POSITION, before)
	}
	if r.comment != "" {
		b.attr(unix.NFTA_RULE_USERDATA, comment(r.comment))
	}
}

// dropRule deletes one rule, or with handle 0 all rules of the chain.
func (b *batch) dropRule(t *table, chainName string, handle uint64) {
	b.message(unix.NFT_MSG_DELRULE, 0, t.family, "delete rules of "+chainName)
	b.str(unix.NFTA_RULE_TABLE, t.name)
	b.str(unix.NFTA_RULE_CHAIN, chainName)
	if handle != 0 {
		b.u64(unix.NFTA_RULE_HANDLE, handle)
	}
}

func decodeRule(family byte, body []byte) rule {
	r := rule{
		exprs:   decodeExprs(findAttr(body, unix.NFTA_RULE_EXPRESSIONS)),
		handle:  beU64(findAttr(body, unix.NFTA_RULE_HANDLE)),
		comment: commentIn(findAttr(body, unix.NFTA_RULE_USERDATA)),
	}
	r.text = decompile(family, r.exprs)
	return r
}

func (b *batch) putTable(t *table) {
	b.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, t.family, "make table "+t.label())
	b.str(unix.NFTA_TABLE_NAME, t.name)
}

func (b *batch) dropTable(t *table) {
	b.message(unix.NFT_MSG_DELTABLE, 0, t.family, "delete table "+t.label())
	b.str(unix.NFTA_TABLE_NAME, t.name)
}

func (b *batch) dropChain(t *table, name string) {
	b.message(unix.NFT_MSG_DELCHAIN, 0, t.family, "delete chain "+name)
	b.str(unix.NFTA_CHAIN_TABLE, t.name)
	b.str(unix.NFTA_CHAIN_NAME, name)
}

func (b *batch) dropSet(t *table, name string) {
	b.message(unix.NFT_MSG_DELSET, 0, t.family, "delete set "+name)
	b.str(unix.NFTA_SET_TABLE, t.name)
	b.str(unix.NFTA_SET_NAME, name)
}
