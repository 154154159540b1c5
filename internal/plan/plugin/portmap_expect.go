// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/weft-net/weft/internal/state"

// ExpectQueries asks where the container's mappings are: in chains of its own of iptables, or in a table of nft.
func (Portmap) ExpectQueries(in Input) []state.Query {
	c, err := decoded(in, readPortmap)
	if err != nil || len(c.mappings) == 0 {
		return nil
	}
	queries := []state.Query{natChain(in, false), natChain(in, true), program(false), program(true)}
	for _, family := range []string{"ip", "ip6"} {
		queries = append(queries, referenceTable(family))
	}
	return append(queries, ownTable())
}

// natChain asks for the chain that a container has with iptables.
func natChain(in Input, v6 bool) state.Query {
	family := "ip"
	if v6 {
		family = "ip6"
	}
	return state.Query{Space: state.Host, Chain: family + " nat " + ChainName("DN-", in.Request.Key())}
}

// referenceTable asks for the reference plugin's table of nft. Its rules are not looked at one by one: they name the
// container and not the network.
func referenceTable(family string) state.Query {
	return state.Query{Space: state.Host, Chain: family + " cni_hostport hostports"}
}

func ownTable() state.Query {
	return state.Query{Space: state.Host, Chain: "inet weft_hostports prerouting"}
}

// Expect is what CHECK compares when nothing is recorded: the chains of iptables, which both programs make alike, or
// the elements of weft's table, wherever the container has any; and where it has none, what its configuration's backend
// makes.
func (Portmap) Expect(in Input) (state.Fragment, error) {
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	c, err := decoded(in, readPortmap)
	if err != nil || len(c.mappings) == 0 || in.Chain.Prev == nil {
		return f, err
	}
	found := func(q state.Query) bool { return in.Answers[q].Found }
	inNAT := found(natChain(in, false)) || found(natChain(in, true))
	if !inNAT && c.backend == backendNFTables && (found(referenceTable("ip")) || found(referenceTable("ip6"))) {
		return f, nil
	}
	p := portMap{conf: c, key: in.Request.Key()}
	for _, ip := range in.targets() {
		if t := (target{net: ip, ports: c.leadTo(ip.Addr())}); len(t.ports) > 0 {
			p.targets = append(p.targets, t)
		}
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
