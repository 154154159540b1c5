// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Underlay is the interface to the other nodes.
type Underlay struct {
	Link string
	// Addrs are its addresses that count, one for each family that is on.
	Addrs []netip.Addr
	// Public are the published addresses; without one of a family it is the interface's.
	Public []netip.Addr
}

// hostLinks are the host's interfaces.
type hostLinks struct {
	state.Space
	// defaults are the links of the default routes, by family; reach is that of the route to --iface-can-reach. Empty:
	// there is none.
	defaults map[int]string
	reach    string
}

func compile(expr string) (*regexp.Regexp, error) { return regexp.Compile(expr) }

// questions returns the route lookups that the choice needs.
func (o Options) questions() map[string]state.Query {
	out := map[string]state.Query{
		"4": {Space: state.Host, DefaultLink: "4"},
		"6": {Space: state.Host, DefaultLink: "6"},
	}
	if a, err := netip.ParseAddr(o.IfaceCanReach); err == nil {
		out["reach"] = state.Query{Space: state.Host, RouteTo: a.Unmap()}
	}
	return out
}

// choice is one way to choose an interface, and its result.
type choice struct {
	asked string
	// link is the interface, with the addresses that matched; why is why there is none.
	link  string
	addrs []netip.Addr
	why   string
}

// choose finds the interface to the other nodes as flannel does: by --iface in their order, then --iface-regex, then
// --iface-can-reach; without any of these by --public-ip, else by the default route.
func (o Options) choose(m hostLinks, families []int, public []netip.Addr) (Underlay, error) {
	var tried []choice
	for _, c := range o.choices(m, families, public) {
		if c.why == "" {
			u, why := m.underlay(c, families)
			if why == "" {
				u.Public = public
				return u, nil
			}
			c.why = why
		}
		tried = append(tried, c)
	}
	var why []string
	for _, c := range tried {
		why = append(why, c.asked+": "+c.why)
	}
	return Underlay{}, model.Errorf(model.CodeInvalidConf, "there are "+m.String(), "no interface to the other nodes: %s",
		strings.Join(why, "; "))
}

func (o Options) choices(m hostLinks, families []int, public []netip.Addr) []choice {
	var out []choice
	for _, word := range o.Ifaces {
		out = append(out, m.named("--iface "+word, word))
	}
	for _, expr := range o.IfaceRegexes {
		out = append(out, m.matching(expr, families))
	}
	if o.IfaceCanReach != "" {
		c := choice{asked: "--iface-can-reach " + o.IfaceCanReach, link: m.reach}
		if c.link == "" {
			c.why = "no route leads there"
		}
		out = append(out, c)
	}
	if len(out) > 0 {
		return out
	}
	for _, a := range public {
		// an address of a gateway in front of the node is on no link, and then the default route counts
		if c := m.named("--public-ip "+a.String(), a.String()); c.why == "" {
			return []choice{c}
		}
	}
	return []choice{m.byDefault(families)}
}

// named finds the link of a name or an address.
func (m hostLinks) named(asked, word string) choice {
	c := choice{asked: asked}
	if a, err := netip.ParseAddr(word); err == nil {
		i := slices.IndexFunc(m.Addrs, func(have state.Addr) bool { return have.Prefix.Addr() == a.Unmap() })
		if i < 0 {
			c.why = "no interface has that address"
			return c
		}
		c.link, c.addrs = m.Addrs[i].Link, []netip.Addr{a.Unmap()}
		return c
	}
	if !slices.ContainsFunc(m.Links, func(l state.Link) bool { return l.Name == word }) {
		c.why = "there is no interface of that name"
	}
	c.link = word
	return c
}

// matching finds the first link one of whose addresses matches, else the first whose name does.
func (m hostLinks) matching(expr string, families []int) choice {
	c := choice{asked: "--iface-regex " + expr}
	re, err := compile(expr)
	if err != nil {
		c.why = err.Error()
		return c
	}
	for _, l := range m.Links {
		var by []netip.Addr
		for _, family := range families {
			for _, a := range m.usable(l.Name, family) {
				if re.MatchString(a.String()) {
					by = append(by, a)
					break
				}
			}
		}
		if len(by) == len(families) {
			c.link, c.addrs = l.Name, by
			return c
		}
	}
	for _, l := range m.Links {
		if re.MatchString(l.Name) {
			c.link = l.Name
			return c
		}
	}
	c.why = "neither a name nor an address matches"
	return c
}

// byDefault returns the link of the default route.
func (m hostLinks) byDefault(families []int) choice {
	c := choice{asked: "default route"}
	for _, family := range families {
		link := m.defaults[family]
		switch {
		case link == "":
			c.why = fmt.Sprintf("there is none of IPv%d; name an interface with --iface", family)
			return c
		case c.link != "" && c.link != link:
			c.why = fmt.Sprintf("that of IPv4 leads over %s, that of IPv6 over %s; name one with --iface", c.link, link)
			return c
		}
		c.link = link
	}
	return c
}

// underlay completes a choice with an address of each family.
func (m hostLinks) underlay(c choice, families []int) (Underlay, string) {
	u := Underlay{Link: c.link}
	for _, family := range families {
		if i := slices.IndexFunc(c.addrs, func(a netip.Addr) bool { return familyOf(a) == family }); i >= 0 {
			u.Addrs = append(u.Addrs, c.addrs[i])
			continue
		}
		all := m.usable(c.link, family)
		if len(all) == 0 {
			return u, fmt.Sprintf("%s has no IPv%d address", c.link, family)
		}
		u.Addrs = append(u.Addrs, all[0])
	}
	return u, ""
}

// usable returns a link's addresses of a family, those of global scope first.
func (m hostLinks) usable(link string, family int) []netip.Addr {
	var global, local []netip.Addr
	for _, a := range m.Addrs {
		ip := a.Prefix.Addr()
		switch {
		case a.Link != link || familyOf(ip) != family:
		case ip.IsGlobalUnicast():
			global = append(global, ip)
		case ip.IsLinkLocalUnicast():
			local = append(local, ip)
		}
	}
	return append(global, local...)
}

// String lists the interfaces.
func (m hostLinks) String() string {
	var out []string
	for _, l := range m.Links {
		var addrs []string
		for _, a := range m.Addrs {
			if a.Link == l.Name {
				addrs = append(addrs, a.Prefix.Addr().String())
			}
		}
		out = append(out, fmt.Sprintf("%s (%s)", l.Name, strings.Join(addrs, " ")))
	}
	return strings.Join(out, ", ")
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}
