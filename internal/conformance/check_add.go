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

func addChecks() []itemCheck {
	return []itemCheck{
		{item: 11, run: majorVersion},
		{item: 19, run: interfaceCreated, notApplicable: onlyFor("it creates no interface", mainPlugin, metaPlugin)},
		{item: 20, run: resultPrinted},
		{item: 21, run: prevResultKept, notApplicable: onlyFor("it is not used in a list", mainPlugin, metaPlugin)},
		{item: 22, run: existingInterface, notApplicable: func(s *subject) string {
			if s.role != mainPlugin || s.ifName == "lo" {
				return "it creates no interface"
			}
			return ""
		}},
		{item: 42, run: withoutStatus},
		{item: 55, run: concurrentCalls},
		{item: 57, run: addAfterDels},
	}
}

// majorVersion calls ADD with the same configuration in each supported version of the major version.
func majorVersion(w *world) verdict {
	v, err := w.versions()
	if err != nil {
		return aborted(err)
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
			return aborted(err)
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

// interfaceCreated compares the kernel with the result, also for dual-stack.
func interfaceCreated(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	if w.sub.role == metaPlugin {
		return passUnless(w.sub.verifyWork(w, p))
	}
	if err := verifyResult(p); err != nil {
		return fail("%v", err)
	}
	if w.ipam["type"] != hostLocal || !w.sub.delegates {
		return pass()
	}
	dual, err := w.sibling()
	if err != nil {
		return aborted(err)
	}
	defer dual.close()
	dual.ipam = dualStackIPAM(dual)
	if p, err = dual.addPod(); err != nil {
		return fail("IPv4 and IPv6: %v", err)
	}
	if err := verifyResult(p); err != nil {
		return fail("IPv4 and IPv6: %v", err)
	}
	return pass()
}

// verifyResult checks that the pod has the addresses and routes of the result.
func verifyResult(p *pod) error {
	r, err := response{stdout: p.final}.result()
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
				return fmt.Errorf("the result has %s, but %s has %v", ip.Address, p.ifName, addrs)
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

// in returns an error unless the kernel's routes contain r.
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
			return fmt.Errorf("the result has the route %s with MTU %d, but the kernel has MTU %d", r.Dst, r.MTU, have.MTU)
		}
		if r.Priority != 0 && have.Priority != r.Priority {
			return fmt.Errorf("the result has the route %s with priority %d, but the kernel has priority %d", r.Dst, r.Priority,
				have.Priority)
		}
		return nil
	}
	return fmt.Errorf("the result has the route %s, but the pod has %v", r.Dst, routes)
}

func resultPrinted(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	_, err = response{stdout: p.final}.result()
	return passUnless(err)
}

// unrelatedPrevResult is the prevResult of some plugin before a main one.
func unrelatedPrevResult(w *world, p *pod) json.RawMessage {
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
		return aborted(err)
	}
	r := w.request(add, p)
	if p.prev == nil {
		p.prev = unrelatedPrevResult(w, p)
		r.conf["prevResult"] = p.prev
	}
	a := w.execute(r)
	if w.sub.role == mainPlugin && w.sub.ifName != "lo" && a.failed() && a.cniError() != nil {
		return pass() // it rejects being chained
	}
	if !a.ok() {
		return aborted(asError(a))
	}
	now, err := a.result()
	if err != nil {
		return fail("%v", err)
	}
	prev, err := response{stdout: p.prev}.result()
	if err != nil {
		return aborted(err)
	}
	if gone := missingFrom(prev, now); gone != nil {
		return fail("%s missing in the result", strings.Join(gone, ", "))
	}
	return pass()
}

func existingInterface(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	err = p.ns.Do(func() error { return addVeth(p.ifName, "kitother0", nil) })
	if err != nil {
		return aborted(err)
	}
	before, err := takeSnapshot(w.ctx, p.ns)
	if err != nil {
		return aborted(err)
	}
	if a := w.execute(w.request(add, p)); !a.failed() {
		return fail("%s already exists: %s", p.ifName, a)
	}
	after, err := takeSnapshot(w.ctx, p.ns)
	if err != nil {
		return aborted(err)
	}
	if c := diff(before, after); c != nil {
		return fail("the failed ADD changed the pod: %s", strings.Join(c, "; "))
	}
	return pass()
}

func withoutStatus(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return fail("%v", err)
	}
	return passUnless(w.del(p))
}

// concurrentCalls attaches and detaches several pods concurrently.
func concurrentCalls(w *world) verdict {
	const pods = 6
	for range pods {
		if _, err := w.newPod(); err != nil {
			return aborted(err)
		}
	}
	inParallel := func(do func(*pod) error) []error {
		errs := make([]error, pods)
		var wg sync.WaitGroup
		for i, p := range w.pods {
			wg.Go(func() { errs[i] = do(p) })
		}
		wg.Wait()
		return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	}
	if errs := inParallel(w.add); len(errs) > 0 {
		return fail("%d of %d concurrent ADDs fail: %v", len(errs), pods, errs[0])
	}
	owner := map[netip.Prefix]int{}
	for _, p := range w.pods {
		r, err := response{stdout: p.final}.result()
		if err != nil {
			return fail("%v", err)
		}
		for _, ip := range r.IPs {
			a, err := netip.ParsePrefix(ip.Address)
			if err != nil || a.Addr().IsLoopback() {
				continue
			}
			if owner[a] != 0 {
				return fail("%s was allocated to two pods", a)
			}
			owner[a] = p.n
		}
	}
	if errs := inParallel(w.del); len(errs) > 0 {
		return fail("%d of %d concurrent DELs fail: %v", len(errs), pods, errs[0])
	}
	return pass()
}

func addAfterDels(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	for range 2 {
		if err := w.del(p); err != nil {
			return fail("%v", err)
		}
	}
	if err := w.add(p); err != nil {
		return fail("after two DELs: %v", err)
	}
	return passUnless(w.del(p))
}
