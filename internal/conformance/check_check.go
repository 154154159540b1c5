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

// checkSince is the version that introduced CHECK.
const checkSince = "0.4.0"

func checkChecks() []itemCheck {
	onlyMain := onlyFor("it creates no interface, address or route", mainPlugin)
	return []itemCheck{
		{item: 30, since: checkSince, run: wrongPrevResult, notApplicable: func(s *subject) string {
			if s.role == metaPlugin || s.ifName == "lo" {
				return "it returns no address of its own"
			}
			return ""
		}},
		{
			item: 31, since: checkSince, run: additionalRoutes,
			notApplicable: onlyFor("it configures no namespace", mainPlugin, metaPlugin),
		},
		{item: 32, since: checkSince, run: missingParts, notApplicable: onlyMain},
		{item: 33, since: checkSince, run: damagedParts, notApplicable: func(s *subject) string {
			if s.damages == nil {
				return "it creates nothing else"
			}
			return ""
		}},
		{item: 34, since: checkSince, run: linkDown, notApplicable: onlyMain},
		{item: 35, since: checkSince, run: checkAfterAdd},
	}
}

// checkMustFail returns an error unless CHECK fails.
func (w *world) checkMustFail(p *pod, what string) error {
	a := w.execute(w.request(check, p))
	if a.failed() {
		return nil
	}
	return fmt.Errorf("%s: %s", what, a)
}

// wrongPrevResult calls CHECK with an address in prevResult that the pod does not have.
func wrongPrevResult(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	if err := w.check(p); err != nil {
		return aborted(err)
	}
	var r map[string]any
	if err := json.Unmarshal(p.final, &r); err != nil {
		return aborted(err)
	}
	ips, _ := r["ips"].([]any)
	if len(ips) == 0 {
		return aborted(fmt.Errorf("the result has no address: %s", short(string(p.final))))
	}
	first, _ := ips[0].(map[string]any)
	if first == nil {
		return aborted(fmt.Errorf("the result has no address: %s", short(string(p.final))))
	}
	first["address"] = "198.51.100.9/24"
	if p.final, err = json.Marshal(r); err != nil {
		return aborted(err)
	}
	return passUnless(w.checkMustFail(p, "prevResult has 198.51.100.9/24, which the pod does not have"))
}

// additionalRoutes adds a route and an address, as a later plugin may have done.
func additionalRoutes(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
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
		return aborted(err)
	}
	return passUnless(w.check(p))
}

// missingParts deletes the route, the address and the interface, each in a new pod.
func missingParts(w *world) verdict {
	if w.sub.ifName == "lo" {
		p, err := w.addPod()
		if err != nil {
			return aborted(err)
		}
		if err := inPod(p, "lo", netlink.LinkSetDown); err != nil {
			return aborted(err)
		}
		return passUnless(w.checkMustFail(p, "lo is down"))
	}
	for _, part := range []damage{
		{"the default route is missing", deleteDefaultRoute},
		{"the address is missing", deleteAddresses},
		{"the interface is missing", func(_ *world, p *pod) error { return inPod(p, p.ifName, netlink.LinkDel) }},
	} {
		p, err := w.addPod()
		if err != nil {
			return aborted(err)
		}
		if err := w.check(p); err != nil {
			return aborted(err)
		}
		if err := part.do(w, p); err != nil {
			return aborted(err)
		}
		if err := w.checkMustFail(p, part.what); err != nil {
			return fail("%v", err)
		}
		if err := w.del(p); err != nil {
			return aborted(err)
		}
	}
	return pass()
}

func deleteDefaultRoute(_ *world, p *pod) error {
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

func deleteAddresses(_ *world, p *pod) error {
	r, err := response{stdout: p.final}.result()
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

// damagedParts damages everything else that the plugin has configured.
func damagedParts(w *world) verdict {
	for _, h := range w.sub.damages {
		p, err := w.addPod()
		if err != nil {
			return aborted(err)
		}
		if err := w.check(p); err != nil {
			return aborted(err)
		}
		if err := h.do(w, p); err != nil {
			return aborted(fmt.Errorf("damage %s: %w", h.what, err))
		}
		if err := w.checkMustFail(p, "removed or changed: "+h.what); err != nil {
			return fail("%v", err)
		}
		if err := w.del(p); err != nil {
			return fail("removed or changed: %s: %v", h.what, err)
		}
	}
	return pass()
}

func linkDown(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	if err := inPod(p, p.ifName, netlink.LinkSetDown); err != nil {
		return aborted(err)
	}
	return passUnless(w.checkMustFail(p, "the interface is down"))
}

// checkAfterAdd calls CHECK after the ADD. A failure counts if a second CHECK fails, too: the specification allows a
// plugin time to converge.
func checkAfterAdd(w *world) verdict {
	const convergence = time.Second
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	if err = w.check(p); err == nil {
		return pass()
	}
	time.Sleep(convergence)
	if second := w.check(p); second != nil {
		return fail("%v", err)
	}
	return pass()
}
