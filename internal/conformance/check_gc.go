// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"regexp"
	"strings"
	"time"
)

func gcChecks() []itemCheck {
	return []itemCheck{
		{item: 46, since: statusSince, run: staleRemoved},
		{item: 47, since: statusSince, run: gcContinuesAfterError, notApplicable: onlyDelegating},
		{item: 50, since: statusSince, run: validUnchanged},
	}
}

// addStalePod attaches a pod that stays, and one whose namespace is deleted without a DEL; visible is what is left of
// it.
func addStalePod(w *world) (alive, dead *pod, host snapshot, visible []string, err error) {
	if alive, err = w.addPod(); err != nil {
		return nil, nil, nil, nil, err
	}
	if host, err = takeSnapshot(w.ctx, w.host); err != nil {
		return nil, nil, nil, nil, err
	}
	if dead, err = w.addPod(); err != nil {
		return nil, nil, nil, nil, err
	}
	if err = w.removeNetns(dead); err != nil {
		return nil, nil, nil, nil, err
	}
	time.Sleep(netnsTeardown)
	visible, err = w.leftoversOnNode(dead, host, 0)
	return alive, dead, host, visible, err
}

// kitLinks matches links that the kit has created, with their addresses and routes: they exist as long as a process
// holds the namespace of the peer.
var kitLinks = regexp.MustCompile(`^left: (link|address .* of|route .* dev) kit(v|hd|hp)[0-9]+`)

// netnsTeardown is the time that the kernel may need to delete a namespace.
const netnsTeardown = 300 * time.Millisecond

// leftoversOnNode returns the leftovers of a pod whose namespace is deleted.
func (w *world) leftoversOnNode(p *pod, host snapshot, patience time.Duration) ([]string, error) {
	left, err := w.leftovers(p, host, nil, patience)
	var out []string
	for _, c := range left {
		if strings.HasPrefix(c, "left: ") && !kitLinks.MatchString(c) {
			out = append(out, c)
		}
	}
	return out, err
}

func staleRemoved(w *world) verdict {
	alive, dead, host, visible, err := addStalePod(w)
	if err != nil {
		return aborted(err)
	}
	if len(visible) == 0 {
		return notApplied("nothing remains after the pod's namespace is deleted")
	}
	if err := w.gc(alive); err != nil {
		return fail("%v", err)
	}
	left, err := w.leftoversOnNode(dead, host, cleanupTimeout)
	if err != nil {
		return aborted(err)
	}
	if len(left) > 0 {
		return fail("GC has not removed %s", summary(left))
	}
	return pass()
}

// gcContinuesAfterError: if the delegate's GC fails, the plugin still removes its own objects, and returns the error.
func gcContinuesAfterError(w *world) verdict {
	conf, err := recorderIPAM(w)
	if err != nil {
		return aborted(err)
	}
	w.ipam = conf
	alive, dead, host, visible, err := addStalePod(w)
	if err != nil {
		return aborted(err)
	}
	const msg = "kit: no GC"
	if err := w.rec.setError(recorderType, gc, w.version, msg); err != nil {
		return aborted(err)
	}
	a := w.execute(w.gcRequest(alive))
	if !a.failed() || !strings.Contains(a.text(), msg) {
		return fail("the delegate's GC fails, but the error is not returned: %s", a)
	}
	left, err := w.leftoversOnNode(dead, host, cleanupTimeout)
	if err != nil {
		return aborted(err)
	}
	if len(visible) > 0 && len(left) > 0 {
		return fail("after an error of the delegate GC has not removed %s", summary(left))
	}
	return pass()
}

// validUnchanged checks that GC changes neither valid attachments nor other networks.
func validUnchanged(w *world) verdict {
	p, err := w.addPod()
	if err != nil {
		return aborted(err)
	}
	host, inPod, err := w.state(p)
	if err != nil {
		return aborted(err)
	}
	own := filesNaming(p.id, w.data())
	r := w.gcRequest() // no valid attachments, in another network
	r.conf["name"] = w.network + "x"
	for _, r := range []request{w.gcRequest(p), r} {
		if a := w.execute(r); !a.ok() {
			return fail("%s", a)
		}
		hostNow, inPodNow, err := w.state(p)
		if err != nil {
			return aborted(err)
		}
		harmed := append(diff(host, hostNow), diff(inPod, inPodNow)...)
		if len(filesNaming(p.id, w.data())) < len(own) {
			harmed = append(harmed, "gone: its reservation")
		}
		if len(harmed) > 0 {
			return fail("GC of network %s changed a valid attachment of %s: %s", r.conf["name"], w.network, summary(harmed))
		}
	}
	return passUnless(w.check(p))
}
