// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

func delChecks() []itemCheck {
	return []itemCheck{
		{item: 25, run: delWithoutPrev},
		{item: 26, run: delUndoes},
		{item: 27, run: delTwice},
		{item: 28, run: delOfMissing},
		{item: 29, run: delWithoutNamespace},
	}
}

// testDel attaches a pod, calls detach, and fails if anything is left. Objects that pods share are created before.
func testDel(w *world, checkPod bool, detach func(p *pod) error) verdict {
	if err := w.warmUp(); err != nil {
		return aborted(err)
	}
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	host, inPod, err := w.state(p)
	if err != nil {
		return aborted(err)
	}
	if !checkPod {
		inPod = nil
	}
	if err := w.add(p); err != nil {
		return aborted(err)
	}
	if err := detach(p); err != nil {
		return fail("%v", err)
	}
	left, err := w.leftovers(p, host, inPod, cleanupTimeout)
	if err != nil {
		return aborted(err)
	}
	if !checkPod { // the kernel deletes links with their namespace
		left = slices.DeleteFunc(left, func(c string) bool { return strings.HasPrefix(c, "gone: ") })
	}
	if len(left) > 0 {
		return fail("%s", summary(left))
	}
	return pass()
}

// summary returns the beginning of a list.
func summary(list []string) string {
	const size = 4
	if len(list) > size {
		return normalize(strings.Join(list[:size], "; ")) + "; …"
	}
	return normalize(strings.Join(list, "; "))
}

func delWithoutPrev(w *world) verdict {
	return testDel(w, true, func(p *pod) error {
		p.final = nil
		return w.del(p)
	})
}

// delUndoes checks DEL, also for dual-stack.
func delUndoes(w *world) verdict {
	v := testDel(w, true, w.del)
	if v.outcome != Pass || w.ipam["type"] != hostLocal || !w.sub.delegates {
		return v
	}
	dual, err := w.sibling()
	if err != nil {
		return aborted(err)
	}
	defer dual.close()
	dual.ipam = dualStackIPAM(dual)
	if v = testDel(dual, true, dual.del); v.outcome == Fail {
		v.seen = "IPv4 and IPv6: " + v.seen
	}
	return v
}

func delTwice(w *world) verdict {
	return testDel(w, true, func(p *pod) error {
		for range 3 {
			if err := w.del(p); err != nil {
				return err
			}
		}
		return nil
	})
}

// delOfMissing detaches a pod that was never attached, and one whose interface is already deleted.
func delOfMissing(w *world) verdict {
	never, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	if err := w.del(never); err != nil {
		return fail("never attached: %v", err)
	}
	return testDel(w, false, func(p *pod) error {
		if w.sub.role != ipamPlugin && p.ifName != "lo" {
			if err := inPod(p, p.ifName, netlink.LinkDel); err != nil {
				return err
			}
		}
		return w.del(p)
	})
}

// delWithoutNamespace calls DEL after the namespace is deleted, with its former path in CNI_NETNS, and with an empty
// one.
func delWithoutNamespace(w *world) verdict {
	for _, empty := range []bool{false, true} {
		v := testDel(w, false, func(p *pod) error {
			if err := w.removeNetns(p); err != nil {
				return err
			}
			r := w.request(del, p)
			if empty {
				r.env["CNI_NETNS"] = ""
			}
			return asError(w.execute(r))
		})
		if v.outcome != Pass {
			if empty {
				v.seen = "with an empty CNI_NETNS: " + v.seen
			} else {
				v.seen = "with a CNI_NETNS that does not exist: " + v.seen
			}
			return v
		}
	}
	return pass()
}
