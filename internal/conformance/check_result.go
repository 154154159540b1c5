// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
)

func resultChecks() []judgment {
	return []judgment{
		{item: 78, run: addressGiven, without: only("it is no IPAM plugin", giver)},
		{item: 79, run: everyForm},
		{item: 80, run: sandboxes, without: only("its result has no interfaces", maker)},
		{item: 81, run: unchangedPrev, without: only("it is no chained plugin", chained)},
		{item: 82, run: noInterfaces, without: only("it is no IPAM plugin", giver)},
	}
}

// known are the versions of the specification.
func known() []string {
	return []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
}

func addressGiven(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	r, err := answer{stdout: p.final}.result()
	switch {
	case err != nil:
		return fail("%v", err)
	case len(r.IPs) == 0:
		return fail("the result has no ips: %s", short(string(p.final)))
	case r.IPs[0].Gateway == "":
		return fail("the result has no gateway: %s", short(string(p.final)))
	case len(r.Routes) == 0:
		return fail("the configuration has a route, the result none: %s", short(string(p.final)))
	}
	return pass()
}

// everyForm adds by each version that the plugin says it supports.
func everyForm(w *world) verdict {
	v, err := w.versions()
	if err != nil {
		return broken(err)
	}
	for _, s := range v.Supported {
		if !slices.Contains(known(), s) {
			continue
		}
		if s < "0.3.0" && w.sub.role == chained {
			continue // lists came with 0.3.0
		}
		w.version = s
		p, err := w.newPod()
		if err != nil {
			return broken(err)
		}
		a := w.do(w.request(add, p))
		if !a.ok() {
			return fail("cniVersion %s: %s", s, a)
		}
		if err := form(a.stdout, s, w.sub.role == giver); err != nil {
			return fail("cniVersion %s: %v", s, err)
		}
		p.final = a.stdout
		if err := w.del(p); err != nil {
			return fail("cniVersion %s: %v", s, err)
		}
	}
	return pass()
}

func sandboxes(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	r, err := answer{stdout: p.final}.result()
	if err != nil {
		return fail("%v", err)
	}
	host, inPod, err := w.state(p)
	if err != nil {
		return broken(err)
	}
	has := func(v view, name string) bool {
		return slices.ContainsFunc(v, func(line string) bool { return strings.HasPrefix(line, "link "+name+" ") })
	}
	found := false
	for _, l := range r.Interfaces {
		switch {
		case l.Sandbox == "" && !has(host, l.Name):
			return fail("interface %s has no sandbox, and the node has no such interface", l.Name)
		case l.Sandbox != "" && l.Sandbox != p.ns.Path():
			return fail("interface %s has the sandbox %q, CNI_NETNS is %q", l.Name, l.Sandbox, p.ns.Path())
		case l.Sandbox != "" && !has(inPod, l.Name):
			return fail("interface %s is not in its sandbox", l.Name)
		}
		found = found || l.Sandbox != "" && l.Name == p.ifName
	}
	if !found {
		return fail("the result does not name %s of the container", p.ifName)
	}
	return pass()
}

func unchangedPrev(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	prev, err := answer{stdout: p.prev}.result()
	if err != nil {
		return broken(err)
	}
	now, err := answer{stdout: p.final}.result()
	if err != nil {
		return fail("%v", err)
	}
	if gone := lost(prev, now); gone != nil {
		return fail("the result has lost %s", strings.Join(gone, ", "))
	}
	if len(now.IPs) != len(prev.IPs) {
		return fail("prevResult has %d addresses, the result %d", len(prev.IPs), len(now.IPs))
	}
	if !strings.Contains(string(p.final), "10.22.0.53") {
		return fail("the result has lost the name server 10.22.0.53")
	}
	return pass()
}

func noInterfaces(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	r, err := answer{stdout: p.final}.result()
	if err != nil {
		return fail("%v", err)
	}
	if len(r.Interfaces) > 0 {
		return fail("the result has %d interfaces", len(r.Interfaces))
	}
	for i, ip := range r.IPs {
		if ip.Interface != nil {
			return fail("ips[%d].interface is %d", i, *ip.Interface)
		}
	}
	return pass()
}
