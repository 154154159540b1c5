// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
)

func addChecks() []judgment {
	return []judgment{
		{item: 11, run: majorVersion},
		{item: 19, run: interfaceMade, without: only("it makes no interface", maker, chained)},
		{item: 20, run: resultPrinted},
		{item: 21, run: prevResultKept, without: only("it has no place in a list", maker, chained)},
		{item: 22, run: existingInterface, without: func(s *subject) string {
			if s.role != maker || s.ifName == "lo" {
				return "it makes no interface"
			}
			return ""
		}},
		{item: 42, run: withoutStatus},
		{item: 55, run: manyAtOnce},
		{item: 57, run: addAfterDels},
	}
}

// majorVersion adds by the same configuration under each supported version of the major version that is spoken.
func majorVersion(w *world) verdict {
	v, err := w.versions()
	if err != nil {
		return broken(err)
	}
	major, _, _ := strings.Cut(w.version, ".")
	spoken := w.version
	for _, s := range v.Supported {
		if !strings.HasPrefix(s, major+".") {
			continue
		}
		w.version = s
		p, err := w.newPod()
		if err != nil {
			return broken(err)
		}
		if err := w.add(p); err != nil {
			return fail("cniVersion %s: %v", s, err)
		}
		if err := w.del(p); err != nil {
			return fail("cniVersion %s: %v", s, err)
		}
	}
	w.version = spoken
	return pass()
}

// interfaceMade compares the kernel with what the result promises, also with addresses of both families.
func interfaceMade(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	if w.sub.role == chained {
		return wanted(w.sub.work(w, p))
	}
	if err := promised(p); err != nil {
		return fail("%v", err)
	}
	if w.ipam["type"] != hostLocal || !w.sub.delegates {
		return pass()
	}
	dual, err := w.another()
	if err != nil {
		return broken(err)
	}
	defer dual.close()
	dual.ipam = dualConf(dual)
	if p, err = dual.attached(); err != nil {
		return fail("IPv4 and IPv6: %v", err)
	}
	if err := promised(p); err != nil {
		return fail("IPv4 and IPv6: %v", err)
	}
	return pass()
}

// promised wants the addresses and routes of the result in the pod.
func promised(p *pod) error {
	r, err := answer{stdout: p.final}.result()
	if err != nil {
		return err
	}
	return inPod(p, p.ifName, func(l netlink.Link) error {
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, ip := range r.IPs {
			if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IPNet.String() == ip.Address }) {
				return fmt.Errorf("the result promises %s, %s has %v", ip.Address, p.ifName, addrs)
			}
		}
		routes, err := netlink.RouteList(l, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, want := range r.Routes {
			if err := want.in(routes); err != nil {
				return err
			}
		}
		return nil
	})
}

// in looks for a route in what the kernel has.
func (r resultRoute) in(routes []netlink.Route) error {
	for _, have := range routes {
		dst := ""
		if have.Dst != nil {
			dst = have.Dst.String()
		}
		if dst != r.Dst && (dst != "" || !strings.HasSuffix(r.Dst, "/0")) {
			continue
		}
		if r.MTU != 0 && have.MTU != r.MTU {
			return fmt.Errorf("the result promises the route %s with MTU %d, the kernel's has %d", r.Dst, r.MTU, have.MTU)
		}
		if r.Priority != 0 && have.Priority != r.Priority {
			return fmt.Errorf("the result promises the route %s with priority %d, the kernel's has %d", r.Dst, r.Priority,
				have.Priority)
		}
		return nil
	}
	return fmt.Errorf("the result promises the route %s, the pod has %v", r.Dst, routes)
}

func resultPrinted(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	_, err = answer{stdout: p.final}.result()
	return wanted(err)
}

// before is a prevResult that some plugin before a main one has left.
func before(w *world, p *pod) json.RawMessage {
	b, err := json.Marshal(map[string]any{
		"cniVersion": w.version,
		"interfaces": []any{map[string]any{"name": "kitprev0", "mac": "02:00:00:00:00:01", "sandbox": p.ns.Path()}},
		"ips":        []any{ipEntry(w.version, "198.51.100.7/24", "198.51.100.1")},
		"routes":     []any{map[string]any{"dst": "203.0.113.0/24", "gw": "198.51.100.1"}},
	})
	if err != nil {
		return nil
	}
	return b
}

func prevResultKept(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	r := w.request(add, p)
	if p.prev == nil {
		p.prev = before(w, p)
		r.conf["prevResult"] = p.prev
	}
	a := w.do(r)
	if w.sub.role == maker && w.sub.ifName != "lo" && a.refused() && a.fault() != nil {
		return pass() // it says that it is no plugin for the middle of a list
	}
	if !a.ok() {
		return broken(wish(a))
	}
	now, err := a.result()
	if err != nil {
		return fail("%v", err)
	}
	prev, err := answer{stdout: p.prev}.result()
	if err != nil {
		return broken(err)
	}
	if gone := lost(prev, now); gone != nil {
		return fail("the result has lost %s", strings.Join(gone, ", "))
	}
	return pass()
}

func existingInterface(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	err = p.ns.Do(func() error { return pair(p.ifName, "kitother0", nil) })
	if err != nil {
		return broken(err)
	}
	before, err := look(w.ctx, p.ns)
	if err != nil {
		return broken(err)
	}
	if a := w.do(w.request(add, p)); !a.refused() {
		return fail("%s exists already: %s", p.ifName, a)
	}
	after, err := look(w.ctx, p.ns)
	if err != nil {
		return broken(err)
	}
	if c := changes(before, after); c != nil {
		return fail("the failed ADD has changed the pod: %s", strings.Join(c, "; "))
	}
	return pass()
}

func withoutStatus(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return fail("%v", err)
	}
	return wanted(w.del(p))
}

// manyAtOnce attaches and detaches several pods at the same time.
func manyAtOnce(w *world) verdict {
	const many = 6
	for range many {
		if _, err := w.newPod(); err != nil {
			return broken(err)
		}
	}
	together := func(do func(*pod) error) []error {
		errs := make([]error, many)
		var wg sync.WaitGroup
		for i, p := range w.pods {
			wg.Go(func() { errs[i] = do(p) })
		}
		wg.Wait()
		return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	}
	if errs := together(w.add); len(errs) > 0 {
		return fail("%d of %d ADDs at once fail: %v", len(errs), many, errs[0])
	}
	owner := map[netip.Prefix]int{}
	for _, p := range w.pods {
		r, err := answer{stdout: p.final}.result()
		if err != nil {
			return fail("%v", err)
		}
		for _, ip := range r.IPs {
			a, err := netip.ParsePrefix(ip.Address)
			if err != nil || a.Addr().IsLoopback() {
				continue
			}
			if owner[a] != 0 {
				return fail("%s was given to two pods", a)
			}
			owner[a] = p.n
		}
	}
	if errs := together(w.del); len(errs) > 0 {
		return fail("%d of %d DELs at once fail: %v", len(errs), many, errs[0])
	}
	return pass()
}

func addAfterDels(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	for range 2 {
		if err := w.del(p); err != nil {
			return fail("%v", err)
		}
	}
	if err := w.add(p); err != nil {
		return fail("after two DELs: %v", err)
	}
	return wanted(w.del(p))
}
