// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/weft-net/weft/internal/state"

// ExpectQueries returns the queries for a container's mappings: chains of its own in iptables, or rules or elements in
// a table of nftables.
func (Portmap) ExpectQueries(in Input) []state.Query {
	c, err := decoded(in, readPortmap)
	if err != nil || len(c.mappings) == 0 {
		return nil
	}
	queries := []state.Query{natChain(in, false), natChain(in, true), program(false), program(true)}
	for _, v6 := range []bool{false, true} {
		queries = append(queries, referenceRules(in, v6, "hostports"), referenceRules(in, v6, "masquerading"))
	}
	return append(queries, ownTable())
}

// natChain returns the query for the container's iptables chain.
func natChain(in Input, v6 bool) state.Query {
	family := "ip"
	if v6 {
		family = "ip6"
	}
	return state.Query{Space: state.Host, Chain: family + " nat " + ChainName("DN-", in.Request.Key())}
}

// referenceRules queries a container's rules in a chain of the reference plugin's nftables table. Their comment is the
// container's ID.
func referenceRules(in Input, v6 bool, chain string) state.Query {
	family := "ip"
	if v6 {
		family = "ip6"
	}
	return state.Query{Space: state.Host, Chain: family + " cni_hostport " + chain, Comment: in.Request.ContainerID}
}

func ownTable() state.Query {
	return state.Query{Space: state.Host, Chain: "inet weft_hostports prerouting"}
}

// Expect returns the iptables chains, which both programs create alike, or the elements of weft's table, if the
// container has any there; else what the configuration's backend creates.
func (Portmap) Expect(in Input) (state.Fragment, error) {
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	c, err := decoded(in, readPortmap)
	if err != nil || len(c.mappings) == 0 || in.Chain.Prev == nil {
		return f, err
	}
	found := func(q state.Query) bool { return in.Answers[q].Found }
	inNAT := found(natChain(in, false)) || found(natChain(in, true))
	p := portMap{conf: c, key: in.Request.Key()}
	for _, ip := range in.targets() {
		if t := (target{net: ip, ports: c.mappingsFor(ip.Addr())}); len(t.ports) > 0 {
			p.targets = append(p.targets, t)
		}
	}
	if !inNAT && c.backend == backendNFTables && p.mappedByReference(in) {
		return f, nil
	}
	if !inNAT && (c.backend == backendNFTables && found(ownTable()) || !found(program(false))) {
		f.Host.Tables = []state.Table{p.table()}
		return f, nil
	}
	if p.conf.MarkMasqBit == nil {
		p.conf.bit = iptablesBit
	}
	for _, t := range p.iptables() {
		if found(program(t.IPv6)) {
			f.Host.IPTables = append(f.Host.IPTables, t)
		}
	}
	return f, nil
}

// mappedByReference reports whether the reference plugin's rules of the container are complete, by their numbers, as
// that plugin's own CHECK compares them.
func (p portMap) mappedByReference(in Input) bool {
	for _, t := range p.targets {
		v6 := t.net.Addr().Is6()
		masquerading := 0
		switch {
		case p.conf.SNAT && v6:
			masquerading = 1 // hairpin
		case p.conf.SNAT:
			masquerading = 2 // hairpin, and from the node's loopback address
		}
		if in.Answers[referenceRules(in, v6, "hostports")].Count < len(t.ports) ||
			in.Answers[referenceRules(in, v6, "masquerading")].Count < masquerading {
			return false
		}
	}
	return len(p.targets) > 0
}
