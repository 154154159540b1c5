// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

func delegateChecks() []itemCheck {
	list := []itemCheck{
		{item: 36, since: checkSince, run: func(w *world) verdict { return forwardsVerb(w, check) }},
		{item: 44, since: statusSince, run: func(w *world) verdict { return forwardsVerb(w, status) }},
		{item: 48, since: statusSince, run: func(w *world) verdict { return forwardsVerb(w, gc) }},
		{item: 72, run: searchedInPath},
		{item: 73, run: sameInput},
		{item: 74, run: resultMerged},
		{item: 75, run: errorsReturned},
		{item: 76, run: failedAddUndone},
		{item: 77, run: stderrPassedOn},
	}
	for i := range list {
		list[i].notApplicable = onlyDelegating
	}
	return list
}

// addRecordedPod attaches a pod whose addresses are allocated by the recording plugin.
func (w *world) addRecordedPod() (*pod, error) {
	conf, err := recorderIPAM(w)
	if err != nil {
		return nil, err
	}
	w.ipam = conf
	return w.addPod()
}

// newRecordedPod creates a pod that is not attached yet, with the recording plugin as IPAM plugin.
func (w *world) newRecordedPod() (*pod, error) {
	conf, err := recorderIPAM(w)
	if err != nil {
		return nil, err
	}
	w.ipam = conf
	return w.newPod()
}

// call executes a verb.
func (w *world) call(verb string, p *pod) response {
	switch verb {
	case gc:
		return w.execute(w.gcRequest(p))
	case status:
		return w.execute(w.request(status, nil))
	}
	return w.execute(w.request(verb, p))
}

// forwardsVerb checks that the delegate is executed with a verb, and that its error is returned.
func forwardsVerb(w *world, verb string) verdict {
	p, err := w.addRecordedPod()
	if err != nil {
		return aborted(err)
	}
	if err := w.rec.reset(); err != nil {
		return aborted(err)
	}
	if a := w.call(verb, p); !a.ok() {
		return fail("%s", a)
	}
	if len(w.rec.records(verb)) == 0 {
		return fail("the delegate is not executed for %s", verb)
	}
	const msg = "kit: refused"
	if err := w.rec.setError(recorderType, verb, w.version, msg); err != nil {
		return aborted(err)
	}
	a := w.call(verb, p)
	if !a.failed() {
		return fail("the delegate's %s fails: %s", verb, a)
	}
	if !strings.Contains(a.text(), msg) {
		return fail("the delegate's %s fails with %q: %s", verb, msg, a)
	}
	return pass()
}

// searchedInPath checks that the delegate is found in the last directory of CNI_PATH, and not if it is in none.
func searchedInPath(w *world) verdict {
	if _, err := w.addRecordedPod(); err != nil {
		return fail("a delegate in the second directory of CNI_PATH: %v", err)
	}
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	r := w.request(add, p)
	r.env["CNI_PATH"] = w.dir
	if a := w.execute(r); !a.failed() {
		return fail("a delegate that is not in CNI_PATH: %s", a)
	}
	return pass()
}

func sameInput(w *world) verdict {
	p, err := w.newRecordedPod()
	if err != nil {
		return aborted(err)
	}
	r := w.request(add, p)
	r.env["CNI_ARGS"] = "IgnoreUnknown=1;KIT=yes"
	r.conf["kitUnknownKey"] = []any{"a", 1.0}
	if a := w.execute(r); !a.ok() {
		return aborted(asError(a))
	}
	given := w.rec.records(add)
	if len(given) == 0 {
		return fail("the delegate is not executed for ADD")
	}
	for _, key := range []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH"} {
		if got := given[0].env[key]; got != r.env[key] {
			return fail("%s is %q, the delegate gets %q", key, r.env[key], got)
		}
	}
	b, err := json.Marshal(r.conf)
	if err != nil {
		return aborted(err)
	}
	want := record{stdin: b}.conf()
	if w.sub.typ == flannelType { // it generates its delegate's configuration
		return pass()
	}
	if d := cmp.Diff(want, given[0].conf()); d != "" {
		return fail("the delegate gets a different configuration: %s", short(d))
	}
	return pass()
}

func resultMerged(w *world) verdict {
	p, err := w.addRecordedPod()
	if err != nil {
		return aborted(err)
	}
	r, err := response{stdout: p.final}.result()
	if err != nil {
		return fail("%v", err)
	}
	if !slices.ContainsFunc(r.IPs, func(ip resultIP) bool {
		return ip.Address == "10.25.0.9/24" && ip.Gateway == "10.25.0.1"
	}) {
		return fail("the delegate's address 10.25.0.9/24 is not in the result: %s", short(string(p.final)))
	}
	if !slices.ContainsFunc(r.Routes, func(rt resultRoute) bool { return rt.Dst == "0.0.0.0/0" }) {
		return fail("the delegate's route is not in the result: %s", short(string(p.final)))
	}
	if !strings.Contains(string(p.final), "10.25.0.53") {
		return fail("the delegate's name server is not in the result: %s", short(string(p.final)))
	}
	return pass()
}

// errorsReturned checks all verbs of the version.
func errorsReturned(w *world) verdict {
	verbs := []string{del}
	if w.version >= checkSince {
		verbs = append([]string{check}, verbs...)
	}
	if w.version >= statusSince {
		verbs = append([]string{gc}, verbs...)
	}
	for _, verb := range verbs {
		other, err := w.sibling()
		if err != nil {
			return aborted(err)
		}
		v := forwardsVerb(other, verb)
		other.close()
		if v.outcome != Pass {
			return v
		}
	}
	return pass()
}

func failedAddUndone(w *world) verdict {
	p, err := w.newRecordedPod()
	if err != nil {
		return aborted(err)
	}
	const msg = "kit: no address"
	if err := w.rec.setError(recorderType, add, w.version, msg); err != nil {
		return aborted(err)
	}
	a := w.execute(w.request(add, p))
	switch {
	case !a.failed():
		return fail("the delegate's ADD fails: %s", a)
	case !strings.Contains(a.text(), msg):
		return fail("the delegate's ADD fails with %q: %s", msg, a)
	case len(w.rec.records(del)) == 0:
		return fail("the delegate gets no DEL after its failed ADD")
	}
	return pass()
}

func stderrPassedOn(w *world) verdict {
	p, err := w.newRecordedPod()
	if err != nil {
		return aborted(err)
	}
	a := w.execute(w.request(add, p))
	if want := fmt.Sprintf("%s says %s", recorderType, add); !strings.Contains(string(a.stderr), want) {
		return fail("the delegate writes %q to standard error, the plugin %q", want, short(string(a.stderr)))
	}
	return pass()
}
