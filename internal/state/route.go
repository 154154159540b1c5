// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// Addr is an address on a link.
type Addr struct {
	Link   string       `json:"link"`
	Prefix netip.Prefix `json:"prefix"` // address and prefix length, host bits kept
	// Peer is the remote address of a point-to-point address; an invalid one is unset.
	Peer netip.Prefix `json:"peer,omitzero"`
	// NoDAD skips duplicate address detection (IFA_F_NODAD); written, not compared.
	NoDAD bool `json:"nodad,omitempty"`
	// NoPrefixRoute keeps the kernel from adding the connected route (IFA_F_NOPREFIXROUTE).
	NoPrefixRoute bool `json:"noprefixroute,omitempty"`
	// NoBroadcast omits the broadcast address that an IPv4 address gets by default; written, not compared.
	NoBroadcast bool `json:"nobroadcast,omitempty"`
	// HostScope is the scope of an address that this host answers for and that no packet has as its source unless a
	// program binds it (RT_SCOPE_HOST); written, not compared.
	HostScope bool `json:"hostScope,omitempty"`
	// Shared marks an address with several owners (a bridge's gateway address): Remove leaves it.
	Shared bool `json:"shared,omitempty"`
	// Absent means that the link must not have this address (a bridge's forceAddress). Apply deletes it before it adds
	// others; Remove does not restore it.
	Absent bool `json:"absent,omitempty"`
}

// String prints the address as "addr PREFIX dev LINK".
func (a Addr) String() string {
	s := fmt.Sprintf("addr %s dev %s", a.Prefix, a.Link)
	if a.Absent {
		return "no " + s
	}
	if a.Peer.IsValid() {
		s += " peer " + a.Peer.String()
	}
	return s
}

// Scope is a route's scope as the kernel numbers it; nil in a Route means link for a route without a gateway, else
// universe.
type Scope uint8

// The scopes of routes (rtnetlink(7)).
const (
	ScopeUniverse Scope = 0
	ScopeSite     Scope = 200
	ScopeLink     Scope = 253
	ScopeHost     Scope = 254
)

// Route is a unicast route. Dst, Metric and Table together identify it.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	Gw  netip.Addr   `json:"gw,omitzero"`
	// NextHops are further next hops, which share the load with Gw (ECMP).
	NextHops []NextHop  `json:"beside,omitempty"`
	Link     string     `json:"link,omitempty"`
	Src      netip.Addr `json:"src,omitzero"`
	// Metric is the route's priority. 0 is the driver's default (IPv6: 1024). Routes of one device should have unique
	// metrics: the kernel searches equal ones linearly.
	Metric uint32 `json:"metric,omitempty"`
	// Table is the routing table; 0 is main (254).
	Table  uint32 `json:"table,omitempty"`
	Scope  *Scope `json:"scope,omitempty"`
	MTU    int    `json:"mtu,omitempty"`    // bytes
	AdvMSS int    `json:"advmss,omitempty"` // bytes
	OnLink bool   `json:"onlink,omitempty"`
	// Type is the kernel's route type; 0 is unicast, RTN_BLACKHOLE is 6, RTN_UNREACHABLE 7.
	Type uint8 `json:"type,omitempty"`
	// Protocol is the route's origin (rtm_protocol); 0 is weft's own number.
	Protocol uint8 `json:"protocol,omitempty"`
	Shared   bool  `json:"shared,omitempty"`
	// Absent means that there must be no such route, whichever program added it (routes that move to another table).
	// Apply deletes it after all others exist; Remove does not restore it.
	Absent bool `json:"absent,omitempty"`
	// Coexists allows other routes to the destination with the same metric and table over other links or gateways,
	// whichever program added them: each interface of a pod has its own. The kernel uses the newest one for IPv4; for
	// IPv6 it shares the load among them.
	Coexists bool `json:"coexists,omitempty"`
}

// NextHop is a next hop of a route with several.
type NextHop struct {
	Gw netip.Addr
	// Link is empty for the route's own one.
	Link string
}

// MarshalText returns the gateway, and the link if it has one of its own, as String does.
func (h NextHop) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText is the inverse.
func (h *NextHop) UnmarshalText(text []byte) error {
	gw, link, _ := strings.Cut(string(text), " dev ")
	h.Gw, h.Link = netip.Addr{}, link
	if gw == "" {
		return nil
	}
	var err error
	h.Gw, err = netip.ParseAddr(gw)
	return err
}

// String prints the next hop as ip-route does.
func (h NextHop) String() string {
	text := ""
	if h.Gw.IsValid() {
		text = h.Gw.String()
	}
	if h.Link != "" {
		text += " dev " + h.Link
	}
	return text
}

// Hops returns all next hops of a route, each with its link.
func (r Route) Hops() []NextHop {
	out := []NextHop{{r.Gw, r.Link}}
	for _, h := range r.NextHops {
		out = append(out, NextHop{h.Gw, cmp.Or(h.Link, r.Link)})
	}
	return out
}

// Over returns the route over one of its next hops only.
func (r Route) Over(h NextHop) Route {
	r.Gw, r.Link, r.NextHops = h.Gw, h.Link, nil
	return r
}

// String prints the route as ip-route does.
func (r Route) String() string {
	var b strings.Builder
	if r.Absent {
		b.WriteString("no ")
	}
	fmt.Fprintf(&b, "route %s", r.Dst)
	if r.Gw.IsValid() {
		word(&b, "via", r.Gw.String())
	}
	var others []NextHop
	for _, h := range r.NextHops {
		if h.Link != "" {
			others = append(others, h)
			continue
		}
		word(&b, "and", h.String())
	}
	word(&b, "dev", r.Link)
	for _, h := range others {
		word(&b, "and", h.String())
	}
	if r.Src.IsValid() {
		word(&b, "src", r.Src.String())
	}
	if r.Metric != 0 {
		fmt.Fprintf(&b, " metric %d", r.Metric)
	}
	if r.Table != 0 {
		fmt.Fprintf(&b, " table %d", r.Table)
	}
	if r.Scope != nil {
		fmt.Fprintf(&b, " scope %d", *r.Scope)
	}
	if r.MTU != 0 {
		fmt.Fprintf(&b, " mtu %d", r.MTU)
	}
	if r.AdvMSS != 0 {
		fmt.Fprintf(&b, " advmss %d", r.AdvMSS)
	}
	if r.OnLink {
		b.WriteString(" onlink")
	}
	if r.Type != 0 {
		fmt.Fprintf(&b, " type %d", r.Type)
	}
	return b.String()
}

// Rule is a policy routing rule. All its fields together identify it.
type Rule struct {
	Priority uint32       `json:"priority"`
	From     netip.Prefix `json:"from,omitzero"`
	To       netip.Prefix `json:"to,omitzero"`
	IIf      string       `json:"iif,omitempty"`
	OIf      string       `json:"oif,omitempty"`
	Mark     uint32       `json:"mark,omitempty"`
	Mask     uint32       `json:"mask,omitempty"`
	Table    uint32       `json:"table"`
	IPv6     bool         `json:"ipv6,omitempty"`
	Shared   bool         `json:"shared,omitempty"`
	// Foreign lets Remove delete the rule whichever program added it; otherwise only weft's own.
	Foreign bool `json:"foreign,omitempty"`
}

// String prints the rule as ip-rule does.
func (r Rule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rule %d", r.Priority)
	if r.IPv6 {
		b.WriteString(" inet6")
	}
	if r.From.IsValid() {
		word(&b, "from", r.From.String())
	}
	if r.To.IsValid() {
		word(&b, "to", r.To.String())
	}
	word(&b, "iif", r.IIf)
	word(&b, "oif", r.OIf)
	if r.Mark != 0 {
		fmt.Fprintf(&b, " fwmark %#x/%#x", r.Mark, r.Mask)
	}
	fmt.Fprintf(&b, " table %d", r.Table)
	return b.String()
}

// Neigh is a permanent neighbor entry.
type Neigh struct {
	Link   string     `json:"link"`
	IP     netip.Addr `json:"ip"`
	MAC    MAC        `json:"mac,omitzero"`
	Proxy  bool       `json:"proxy,omitempty"`
	Shared bool       `json:"shared,omitempty"`
}

// String prints the entry as ip-neigh does.
func (n Neigh) String() string {
	if n.Proxy {
		return fmt.Sprintf("neigh proxy %s dev %s", n.IP, n.Link)
	}
	return fmt.Sprintf("neigh %s lladdr %s dev %s", n.IP, n.MAC, n.Link)
}

// Sysctl is one setting below /proc/sys, named with slashes ("net/ipv4/ip_forward"). Settings of a link in the same
// space need no file: net/ipv4/conf/LINK/… and net/ipv6/conf/LINK/addr_gen_mode can be part of the link's own message
// (IFLA_AF_SPEC: IFLA_INET_CONF, IFLA_INET6_ADDR_GEN_MODE).
type Sysctl struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Shared settings (ip_forward) outlive their owners; all others end with their link.
	Shared bool `json:"shared,omitempty"`
	// IfPresent ignores a setting that this kernel or namespace does not have (IPv6 disabled at boot).
	IfPresent bool `json:"ifPresent,omitempty"`
}

// String prints the setting as sysctl(8) does.
func (s Sysctl) String() string { return fmt.Sprintf("sysctl %s = %s", s.Name, s.Value) }
