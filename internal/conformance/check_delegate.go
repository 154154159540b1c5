// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

func delegateChecks() []judgment {
	list := []judgment{
		{item: 36, since: checkSince, run: func(w *world) verdict { return forwards(w, check) }},
		{item: 44, since: readySince, run: func(w *world) verdict { return forwards(w, status) }},
		{item: 48, since: readySince, run: func(w *world) verdict { return forwards(w, gc) }},
		{item: 72, run: searchedInPath},
		{item: 73, run: sameInput},
		{item: 74, run: resultMerged},
		{item: 75, run: errorsReturned},
		{item: 76, run: failedAddUndone},
		{item: 77, run: standardError},
	}
	for i := range list {
		list[i].without = delegating
	}
	return list
}

// recorded attaches a pod whose addresses come from the recording plugin.
func (w *world) recorded() (*pod, error) {
	conf, err := recordedConf(w)
	if err != nil {
		return nil, err
	}
	w.ipam = conf
	return w.attached()
}

// recordedPod is a pod that is not attached yet, in a world whose IPAM plugin is the kit's own.
func (w *world) recordedPod() (*pod, error) {
	conf, err := recordedConf(w)
	if err != nil {
		return nil, err
	}
	w.ipam = conf
	return w.newPod()
}

// call is the request of a verb, with what the verb needs.
func (w *world) call(verb string, p *pod) answer {
	switch verb {
	case gc:
		return w.do(w.gcRequest(p))
	case status:
		return w.do(w.request(status, nil))
	}
	return w.do(w.request(verb, p))
}

// forwards wants a delegate to be executed with a verb, and its error to be the plugin's.
func forwards(w *world, verb string) verdict {
	p, err := w.recorded()
	if err != nil {
		return broken(err)
	}
	if err := w.rec.forget(); err != nil {
		return broken(err)
	}
	if a := w.call(verb, p); !a.ok() {
		return fail("%s", a)
	}
	if len(w.rec.records(verb)) == 0 {
		return fail("the delegate is not executed for %s", verb)
	}
	const msg = "kit: not today"
	if err := w.rec.refuse(recording, verb, w.version, msg); err != nil {
		return broken(err)
	}
	a := w.call(verb, p)
	if !a.refused() {
		return fail("the delegate's %s fails: %s", verb, a)
	}
	if !strings.Contains(a.text(), msg) {
		return fail("the delegate's %s fails with %q: %s", verb, msg, a)
	}
	return pass()
}

// searchedInPath wants the delegate found in the last directory of CNI_PATH, and missed when it is in none.
func searchedInPath(w *world) verdict {
	if _, err := w.recorded(); err != nil {
		return fail("a delegate in the second directory of CNI_PATH: %v", err)
	}
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	r := w.request(add, p)
	r.env["CNI_PATH"] = w.dir
	if a := w.do(r); !a.refused() {
		return fail("a delegate that is not in CNI_PATH: %s", a)
	}
	return pass()
}

func sameInput(w *world) verdict {
	p, err := w.recordedPod()
	if err != nil {
		return broken(err)
	}
	r := w.request(add, p)
	r.env["CNI_ARGS"] = "IgnoreUnknown=1;KIT=yes"
	r.conf["kitUnknownKey"] = []any{"a", 1.0}
	if a := w.do(r); !a.ok() {
		return broken(wish(a))
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
		return broken(err)
	}
	want := record{stdin: b}.conf()
	if w.sub.typ == flannelType { // its delegate is what it says, and the IPAM plugin's caller is that
		return pass()
	}
	if d := cmp.Diff(want, given[0].conf()); d != "" {
		return fail("the delegate gets another configuration: %s", short(d))
	}
	return pass()
}

func resultMerged(w *world) verdict {
	p, err := w.recorded()
	if err != nil {
		return broken(err)
	}
	r, err := answer{stdout: p.final}.result()
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

// errorsReturned is about the verbs that the version has.
func errorsReturned(w *world) verdict {
	verbs := []string{del}
	if w.version >= checkSince {
		verbs = append([]string{check}, verbs...)
	}
	if w.version >= readySince {
		verbs = append([]string{gc}, verbs...)
	}
	for _, verb := range verbs {
		other, err := w.another()
		if err != nil {
			return broken(err)
		}
		v := forwards(other, verb)
		other.close()
		if v.outcome != Pass {
			return v
		}
	}
	return pass()
}

func failedAddUndone(w *world) verdict {
	p, err := w.recordedPod()
	if err != nil {
		return broken(err)
	}
	const msg = "kit: no address today"
	if err := w.rec.refuse(recording, add, w.version, msg); err != nil {
		return broken(err)
	}
	a := w.do(w.request(add, p))
	switch {
	case !a.refused():
		return fail("the delegate's ADD fails: %s", a)
	case !strings.Contains(a.text(), msg):
		return fail("the delegate's ADD fails with %q: %s", msg, a)
	case len(w.rec.records(del)) == 0:
		return fail("the delegate gets no DEL after its ADD has failed")
	}
	return pass()
}

func standardError(w *world) verdict {
	p, err := w.recordedPod()
	if err != nil {
		return broken(err)
	}
	a := w.do(w.request(add, p))
	if want := fmt.Sprintf("%s says %s", recording, add); !strings.Contains(string(a.stderr), want) {
		return fail("the delegate writes %q to standard error, the plugin %q", want, short(string(a.stderr)))
	}
	return pass()
}
