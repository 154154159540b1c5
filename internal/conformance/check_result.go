// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
)

func resultChecks() []itemCheck {
	return []itemCheck{
		{item: 78, run: addressReturned, notApplicable: onlyFor("it is not an IPAM plugin", ipamPlugin)},
		{item: 79, run: everyVersion},
		{item: 80, run: sandboxPaths, notApplicable: onlyFor("its result has no interfaces", mainPlugin)},
		{item: 81, run: unchangedPrev, notApplicable: onlyFor("it is not a chained plugin", metaPlugin)},
		{item: 82, run: noInterfaces, notApplicable: onlyFor("it is not an IPAM plugin", ipamPlugin)},
	}
}

// specVersions returns the versions of the specification.
func specVersions() []string {
	return []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
}

func addressReturned(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	r, err := response{stdout: p.final}.result()
	switch {
	case err != nil:
		return fail("%v", err)
	case len(r.IPs) == 0:
		return fail("the result has no ips: %s", short(string(p.final)))
	case r.IPs[0].Gateway == "":
		return fail("the result has no gateway: %s", short(string(p.final)))
	case len(r.Routes) == 0:
		return fail("the configuration has a route, but the result has none: %s", short(string(p.final)))
	}
	return pass()
}

// everyVersion calls ADD in each version that the plugin supports.
func everyVersion(w *world) verdict {
	v, err := w.versions()
	if err != nil {
		return aborted(err)
	}
	for _, s := range v.Supported {
		if !slices.Contains(specVersions(), s) {
			continue
		}
		if s < "0.3.0" && w.sub.role == metaPlugin {
			continue // lists came with 0.3.0
		}
		w.version = s
		p, err := w.newPod()
		if err != nil {
			return aborted(err)
		}
		a := w.execute(w.request(add, p))
		if !a.ok() {
			return fail("cniVersion %s: %s", s, a)
		}
		if err := validateResult(a.stdout, s, w.sub.role == ipamPlugin); err != nil {
			return fail("cniVersion %s: %v", s, err)
		}
		p.final = a.stdout
		if err := w.del(p); err != nil {
			return fail("cniVersion %s: %v", s, err)
		}
	}
	return pass()
}

func sandboxPaths(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	r, err := response{stdout: p.final}.result()
	if err != nil {
		return fail("%v", err)
	}
	host, inPod, err := w.state(p)
	if err != nil {
		return aborted(err)
	}
	has := func(v snapshot, name string) bool {
		return slices.ContainsFunc(v, func(line string) bool { return strings.HasPrefix(line, "link "+name+" ") })
	}
	found := false
	for _, l := range r.Interfaces {
		switch {
		case l.Sandbox == "" && !has(host, l.Name):
			return fail("interface %s has no sandbox, and the node has no such interface", l.Name)
		case l.Sandbox != "" && l.Sandbox != p.ns.Path():
			return fail("interface %s has the sandbox %q, but CNI_NETNS is %q", l.Name, l.Sandbox, p.ns.Path())
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
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	prev, err := response{stdout: p.prev}.result()
	if err != nil {
		return aborted(err)
	}
	now, err := response{stdout: p.final}.result()
	if err != nil {
		return fail("%v", err)
	}
	if gone := missingFrom(prev, now); gone != nil {
		return fail("%s missing in the result", strings.Join(gone, ", "))
	}
	if len(now.IPs) != len(prev.IPs) {
		return fail("prevResult has %d addresses, but the result has %d", len(prev.IPs), len(now.IPs))
	}
	if !strings.Contains(string(p.final), "10.22.0.53") {
		return fail("the name server 10.22.0.53 is missing in the result")
	}
	return pass()
}

func noInterfaces(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	r, err := response{stdout: p.final}.result()
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
