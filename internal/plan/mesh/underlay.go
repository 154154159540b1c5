// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// observe finds the underlay in the kernel's answers: the link that has the first of self's addresses that any link
// has. A published address may be one that no link has. A configured link takes precedence.
func observe(self model.Node, answers state.Answers, link string) (map[int]Underlay, []Problem) {
	if link != "" {
		return observeLink(self, answers, link)
	}
	found := map[int]Underlay{}
	var problems []Problem
	for _, family := range families() {
		var missing []string
		for _, addr := range addrsOf(self) {
			if familyOf(addr) != family {
				continue
			}
			if a := answers[state.Query{Space: state.Host, LinkOf: addr}]; a.Found {
				found[family] = underlay(addr, a)
				break
			}
			missing = append(missing, addr.String())
		}
		if _, ok := found[family]; !ok && len(missing) > 0 {
			problems = append(problems, Problem{
				[]string{self.Name},
				fmt.Sprintf("node %s: no link has its own address %s", self.Name, strings.Join(missing, " or ")),
				"add the address to a link, or correct status.addresses of the Node",
			})
		}
	}
	return found, problems
}

// observeLink uses the first address of a link for each family that self has addresses of.
func observeLink(self model.Node, answers state.Answers, link string) (map[int]Underlay, []Problem) {
	found := map[int]Underlay{}
	var problems []Problem
	a := answers[state.Query{Space: state.Host, Link: link}]
	for _, family := range families() {
		if !slices.ContainsFunc(addrsOf(self), func(a netip.Addr) bool { return familyOf(a) == family }) {
			continue
		}
		i := slices.IndexFunc(a.Addrs, func(have state.Addr) bool {
			return familyOf(have.Prefix.Addr()) == family && have.Prefix.Addr().IsGlobalUnicast()
		})
		switch {
		case !a.Found:
			problems = append(problems, Problem{
				[]string{self.Name},
				fmt.Sprintf("node %s: there is no link %s", self.Name, link),
				"choose a link that `ip -br addr` shows, or auto",
			})
			return found, problems
		case i < 0:
			problems = append(problems, Problem{
				[]string{self.Name},
				fmt.Sprintf("node %s: the link %s has no IPv%d address", self.Name, link, family),
				"give it one, or choose a link that `ip -br addr` shows with one, or auto",
			})
		default:
			found[family] = underlay(a.Addrs[i].Prefix.Addr(), a)
		}
	}
	return found, problems
}

func underlay(addr netip.Addr, a state.Answer) Underlay {
	u := Underlay{Link: a.Link.Name, Address: addr, OnLink: []netip.Prefix{}, MTU: a.Link.MTU}
	for _, have := range a.Addrs {
		prefix := have.Prefix
		if have.Peer.IsValid() {
			prefix = have.Peer
		}
		if familyOf(prefix.Addr()) == familyOf(addr) {
			u.OnLink = append(u.OnLink, prefix.Masked())
		}
	}
	slices.SortFunc(u.OnLink, comparePrefix)
	u.OnLink = slices.Compact(u.OnLink)
	return u
}
