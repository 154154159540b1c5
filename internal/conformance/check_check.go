// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// checkSince is the version that CHECK came with.
const checkSince = "0.4.0"

func checkChecks() []judgment {
	makes := only("it makes no interface, address or route", maker)
	return []judgment{
		{item: 30, since: checkSince, run: otherPrev, without: func(s *subject) string {
			if s.role == chained || s.ifName == "lo" {
				return "it promises no address of its own"
			}
			return ""
		}},
		{item: 31, since: checkSince, run: moreRoutes, without: only("its addresses are in no namespace", maker, chained)},
		{item: 32, since: checkSince, run: missingParts, without: makes},
		{item: 33, since: checkSince, run: otherParts, without: func(s *subject) string {
			if s.harm == nil {
				return "it owns nothing else that could be taken away"
			}
			return ""
		}},
		{item: 34, since: checkSince, run: linkDown, without: makes},
		{item: 35, since: checkSince, run: rightAfter},
	}
}

// finds wants a CHECK that fails.
func (w *world) finds(p *pod, what string) error {
	a := w.do(w.request(check, p))
	if a.refused() {
		return nil
	}
	return fmt.Errorf("%s: %s", what, a)
}

// otherPrev promises an address that the pod does not have.
func otherPrev(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	if err := w.check(p); err != nil {
		return broken(err)
	}
	var r map[string]any
	if err := json.Unmarshal(p.final, &r); err != nil {
		return broken(err)
	}
	ips, _ := r["ips"].([]any)
	if len(ips) == 0 {
		return broken(fmt.Errorf("the result has no address: %s", short(string(p.final))))
	}
	first, _ := ips[0].(map[string]any)
	if first == nil {
		return broken(fmt.Errorf("the result has no address: %s", short(string(p.final))))
	}
	first["address"] = "198.51.100.9/24"
	if p.final, err = json.Marshal(r); err != nil {
		return broken(err)
	}
	return wanted(w.finds(p, "prevResult promises 198.51.100.9/24, which the pod does not have"))
}

// moreRoutes adds what a later plugin may have added.
func moreRoutes(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	err = inPod(p, p.ifName, func(l netlink.Link) error {
		_, dst, err := net.ParseCIDR("198.18.7.0/24")
		if err != nil {
			return err
		}
		if p.ifName != "lo" {
			if err := netlink.RouteAdd(&netlink.Route{
				LinkIndex: l.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK,
			}); err != nil {
				return err
			}
		}
		a, err := netlink.ParseAddr("198.51.100.33/32")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(l, a)
	})
	if err != nil {
		return broken(err)
	}
	return wanted(w.check(p))
}

// missingParts takes away the route, the address and the interface, each from a pod of its own.
func missingParts(w *world) verdict {
	if w.sub.ifName == "lo" {
		p, err := w.attached()
		if err != nil {
			return broken(err)
		}
		if err := inPod(p, "lo", netlink.LinkSetDown); err != nil {
			return broken(err)
		}
		return wanted(w.finds(p, "lo is down"))
	}
	for _, part := range []harm{
		{"the default route is missing", dropDefault},
		{"the address is missing", dropAddress},
		{"the interface is missing", func(_ *world, p *pod) error { return inPod(p, p.ifName, netlink.LinkDel) }},
	} {
		p, err := w.attached()
		if err != nil {
			return broken(err)
		}
		if err := w.check(p); err != nil {
			return broken(err)
		}
		if err := part.do(w, p); err != nil {
			return broken(err)
		}
		if err := w.finds(p, part.what); err != nil {
			return fail("%v", err)
		}
		if err := w.del(p); err != nil {
			return broken(err)
		}
	}
	return pass()
}

func dropDefault(_ *world, p *pod) error {
	return p.ns.Do(func() error {
		list, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, r := range list {
			if r.Dst == nil || r.Dst.IP.IsUnspecified() {
				return netlink.RouteDel(&r)
			}
		}
		return fmt.Errorf("the pod has no default route: %v", list)
	})
}

func dropAddress(_ *world, p *pod) error {
	r, err := answer{stdout: p.final}.result()
	if err != nil {
		return err
	}
	return inPod(p, p.ifName, func(l netlink.Link) error {
		for _, ip := range r.IPs {
			if pre, err := netip.ParsePrefix(ip.Address); err != nil || !pre.Addr().Is4() {
				continue
			}
			a, err := netlink.ParseAddr(ip.Address)
			if err != nil {
				return err
			}
			if err := netlink.AddrDel(l, a); err != nil {
				return fmt.Errorf("address %s: %w", ip.Address, err)
			}
		}
		return nil
	})
}

// otherParts breaks whatever else the plugin has made.
func otherParts(w *world) verdict {
	for _, h := range w.sub.harm {
		p, err := w.attached()
		if err != nil {
			return broken(err)
		}
		if err := w.check(p); err != nil {
			return broken(err)
		}
		if err := h.do(w, p); err != nil {
			return broken(fmt.Errorf("take away %s: %w", h.what, err))
		}
		if err := w.finds(p, "taken away or changed: "+h.what); err != nil {
			return fail("%v", err)
		}
		if err := w.del(p); err != nil {
			return fail("taken away or changed: %s: %v", h.what, err)
		}
	}
	return pass()
}

func linkDown(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	if err := inPod(p, p.ifName, netlink.LinkSetDown); err != nil {
		return broken(err)
	}
	return wanted(w.finds(p, "the interface is down"))
}

// rightAfter gives a plugin a little time, as the specification does, but no failure at first sight is hidden by it: a
// second one in a row is one.
func rightAfter(w *world) verdict {
	const convergence = time.Second
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	if err = w.check(p); err == nil {
		return pass()
	}
	time.Sleep(convergence)
	if again := w.check(p); again != nil {
		return fail("%v", err)
	}
	return pass()
}
