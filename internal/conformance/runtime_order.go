// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
)

// orderChecks returns checks of the order of calls and of errors.
func orderChecks() []runtimeCheck {
	return []runtimeCheck{
		{37, notAttached},
		{49, noGCForDel},
		{61, addOrder},
		{63, delOrder},
		{64, checkOrder},
		{65, gcPastErrors},
		{66, statusOrder},
	}
}

// expectCalls checks that exactly these plugins were called with a verb.
func (b *testbed) expectCalls(verb string, want ...string) verdict {
	var got []string
	for _, r := range b.rec.records(verb) {
		got = append(got, r.typ)
	}
	if !slices.Equal(got, want) {
		return fail("%s reaches %v, want %v", verb, got, want)
	}
	return pass()
}

const refusal = "kit: refused"

// expectStopAtError checks that a call fails with the error of the list's second plugin, after exactly these calls.
func (b *testbed) expectStopAtError(verb string, l map[string]any, flags []string, want ...string) verdict {
	if err := b.rec.setError(typeB, verb, "1.1.0", refusal); err != nil {
		return fail("%v", err)
	}
	if err := b.rec.reset(); err != nil {
		return fail("%v", err)
	}
	a := b.call(strings.ToLower(verb), l, flags...)
	if !a.failed() || !strings.Contains(a.text(), refusal) {
		return fail("%s fails with %q: %s", typeB, refusal, a)
	}
	return b.expectCalls(verb, want...)
}

func notAttached(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	if a := b.call("del", l); !a.ok() {
		return aborted(asError(a))
	}
	a := b.call("check", l)
	if n := len(b.rec.records(check)); n > 0 {
		return notApplied(
			"`weft cni check` works without an attachment, too (as cnitool does): %d plugins are called; %s", n, a,
		)
	}
	return pass()
}

func noGCForDel(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	if a := b.call("del", l); !a.ok() {
		return aborted(asError(a))
	}
	if len(b.rec.records(gc)) > 0 {
		return fail("a DEL calls %d plugins with GC", len(b.rec.records(gc)))
	}
	return b.expectCalls(del, typeC, typeB, typeA)
}

func addOrder(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	if v := b.expectCalls(add, typeA, typeB, typeC); v.outcome != Pass {
		return v
	}
	return b.expectStopAtError(add, l, []string{"--container-id", "kit-other"}, typeA, typeB)
}

func delOrder(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	if a := b.call("del", l); !a.ok() {
		return aborted(asError(a))
	}
	if v := b.expectCalls(del, typeC, typeB, typeA); v.outcome != Pass {
		return v
	}
	return b.expectStopAtError(del, l, nil, typeC, typeB)
}

func checkOrder(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	if a := b.call("check", l); !a.ok() {
		return aborted(asError(a))
	}
	if v := b.expectCalls(check, typeA, typeB, typeC); v.outcome != Pass {
		return v
	}
	return b.expectStopAtError(check, l, nil, typeA, typeB)
}

func gcPastErrors(b *testbed) verdict {
	l := pluginList(nil)
	for _, typ := range []string{typeA, typeB} {
		if err := b.rec.setError(typ, gc, "1.1.0", refusal+" says "+typ); err != nil {
			return aborted(err)
		}
	}
	a := b.call("gc", l)
	if v := b.expectCalls(gc, typeA, typeB, typeC); v.outcome != Pass {
		return v
	}
	for _, typ := range []string{typeA, typeB} {
		if !a.failed() || !strings.Contains(a.text(), refusal+" says "+typ) {
			return fail("the error of %s is not returned: %s", typ, a)
		}
	}
	return pass()
}

func statusOrder(b *testbed) verdict {
	l := pluginList(nil)
	if a := b.call("status", l); !a.ok() {
		return aborted(asError(a))
	}
	if v := b.expectCalls(status, typeA, typeB, typeC); v.outcome != Pass {
		return v
	}
	return b.expectStopAtError(status, l, nil, typeA, typeB)
}
