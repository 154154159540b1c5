// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

func delChecks() []judgment {
	return []judgment{
		{item: 25, run: delWithoutPrev},
		{item: 26, run: delUndoes},
		{item: 27, run: delTwice},
		{item: 28, run: delOfNothing},
		{item: 29, run: delWithoutNamespace},
	}
}

// undone attaches a pod, lets end detach it, and tells what is left. What all pods share was there before.
func undone(w *world, podToo bool, end func(p *pod) error) verdict {
	if err := w.warm(); err != nil {
		return broken(err)
	}
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	host, inPod, err := w.state(p)
	if err != nil {
		return broken(err)
	}
	if !podToo {
		inPod = nil
	}
	if err := w.add(p); err != nil {
		return broken(err)
	}
	if err := end(p); err != nil {
		return fail("%v", err)
	}
	left, err := w.traces(p, host, inPod, patience)
	if err != nil {
		return broken(err)
	}
	if !podToo { // the kernel takes with the namespace what was in it
		left = slices.DeleteFunc(left, func(c string) bool { return strings.HasPrefix(c, "gone: ") })
	}
	if len(left) > 0 {
		return fail("%s", summary(left))
	}
	return pass()
}

// summary is the beginning of a list.
func summary(list []string) string {
	const most = 4
	if len(list) > most {
		return tidy(strings.Join(list[:most], "; ")) + "; …"
	}
	return tidy(strings.Join(list, "; "))
}

func delWithoutPrev(w *world) verdict {
	return undone(w, true, func(p *pod) error {
		p.final = nil
		return w.del(p)
	})
}

// delUndoes is also about addresses of both families.
func delUndoes(w *world) verdict {
	v := undone(w, true, w.del)
	if v.outcome != Pass || w.ipam["type"] != hostLocal || !w.sub.delegates {
		return v
	}
	dual, err := w.another()
	if err != nil {
		return broken(err)
	}
	defer dual.close()
	dual.ipam = dualConf(dual)
	if v = undone(dual, true, dual.del); v.outcome == Fail {
		v.seen = "IPv4 and IPv6: " + v.seen
	}
	return v
}

func delTwice(w *world) verdict {
	return undone(w, true, func(p *pod) error {
		for range 3 {
			if err := w.del(p); err != nil {
				return err
			}
		}
		return nil
	})
}

// delOfNothing detaches a pod that was never attached, and one whose interface somebody has deleted.
func delOfNothing(w *world) verdict {
	never, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	if err := w.del(never); err != nil {
		return fail("never attached: %v", err)
	}
	return undone(w, false, func(p *pod) error {
		if w.sub.role != giver && p.ifName != "lo" {
			if err := inPod(p, p.ifName, netlink.LinkDel); err != nil {
				return err
			}
		}
		return w.del(p)
	})
}

// delWithoutNamespace: the namespace is gone, and CNI_NETNS names what is no more, or nothing.
func delWithoutNamespace(w *world) verdict {
	for _, empty := range []bool{false, true} {
		v := undone(w, false, func(p *pod) error {
			if err := w.gone(p); err != nil {
				return err
			}
			r := w.request(del, p)
			if empty {
				r.env["CNI_NETNS"] = ""
			}
			return wish(w.do(r))
		})
		if v.outcome != Pass {
			if empty {
				v.seen = "with an empty CNI_NETNS: " + v.seen
			} else {
				v.seen = "with a CNI_NETNS that is gone: " + v.seen
			}
			return v
		}
	}
	return pass()
}
