// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"regexp"
	"strings"
	"time"
)

func gcChecks() []judgment {
	return []judgment{
		{item: 46, since: readySince, run: staleRemoved},
		{item: 47, since: readySince, run: pastErrors, without: delegating},
		{item: 50, since: readySince, run: validSpared},
	}
}

// stale is a pod whose namespace is gone without a DEL, beside one that lives; visible is what is left of it.
func stale(w *world) (alive, dead *pod, host view, visible []string, err error) {
	if alive, err = w.attached(); err != nil {
		return nil, nil, nil, nil, err
	}
	if host, err = look(w.ctx, w.host); err != nil {
		return nil, nil, nil, nil, err
	}
	if dead, err = w.attached(); err != nil {
		return nil, nil, nil, nil, err
	}
	if err = w.gone(dead); err != nil {
		return nil, nil, nil, nil, err
	}
	time.Sleep(settling)
	visible, err = w.remains(dead, host, 0)
	return alive, dead, host, visible, err
}

// ownLink are the links that the kit has made, with their addresses and routes: they live as long as somebody holds the
// namespace of the other end.
var ownLink = regexp.MustCompile(`^left: (link|address .* of|route .* dev) kit(v|hd|hp)[0-9]+`)

// settling is what the kernel may take to clear a namespace away.
const settling = 300 * time.Millisecond

// remains are the traces of a pod that has no namespace any more.
func (w *world) remains(p *pod, host view, patience time.Duration) ([]string, error) {
	left, err := w.traces(p, host, nil, patience)
	var out []string
	for _, c := range left {
		if strings.HasPrefix(c, "left: ") && !ownLink.MatchString(c) {
			out = append(out, c)
		}
	}
	return out, err
}

func staleRemoved(w *world) verdict {
	alive, dead, host, visible, err := stale(w)
	if err != nil {
		return broken(err)
	}
	if len(visible) == 0 {
		return notApplied("nothing of it outlives the pod's namespace")
	}
	if err := w.gc(alive); err != nil {
		return fail("%v", err)
	}
	left, err := w.remains(dead, host, patience)
	if err != nil {
		return broken(err)
	}
	if len(left) > 0 {
		return fail("GC has not removed %s", summary(left))
	}
	return pass()
}

// pastErrors lets the delegate fail its GC: the plugin's own work is done all the same, and the error is told.
func pastErrors(w *world) verdict {
	conf, err := recordedConf(w)
	if err != nil {
		return broken(err)
	}
	w.ipam = conf
	alive, dead, host, visible, err := stale(w)
	if err != nil {
		return broken(err)
	}
	const msg = "kit: no GC today"
	if err := w.rec.refuse(recording, gc, w.version, msg); err != nil {
		return broken(err)
	}
	a := w.do(w.gcRequest(alive))
	if !a.refused() || !strings.Contains(a.text(), msg) {
		return fail("the delegate's GC fails, and that is not told: %s", a)
	}
	left, err := w.remains(dead, host, patience)
	if err != nil {
		return broken(err)
	}
	if len(visible) > 0 && len(left) > 0 {
		return fail("an error of the delegate keeps GC from removing %s", summary(left))
	}
	return pass()
}

// validSpared wants nothing of a valid attachment touched, and nothing of another network.
func validSpared(w *world) verdict {
	p, err := w.attached()
	if err != nil {
		return broken(err)
	}
	host, inPod, err := w.state(p)
	if err != nil {
		return broken(err)
	}
	own := naming(p.id, w.data())
	r := w.gcRequest() // no valid attachment at all, in another network
	r.conf["name"] = w.network + "x"
	for _, r := range []request{w.gcRequest(p), r} {
		if a := w.do(r); !a.ok() {
			return fail("%s", a)
		}
		hostNow, inPodNow, err := w.state(p)
		if err != nil {
			return broken(err)
		}
		harmed := append(changes(host, hostNow), changes(inPod, inPodNow)...)
		if len(naming(p.id, w.data())) < len(own) {
			harmed = append(harmed, "gone: its reservation")
		}
		if len(harmed) > 0 {
			return fail("GC of network %s has changed a valid attachment of %s: %s", r.conf["name"], w.network, summary(harmed))
		}
	}
	return wanted(w.check(p))
}
