// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
)

// orderTrials are about which plugins are called, when, and what becomes of errors.
func orderTrials() []trial {
	return []trial{
		{37, notAttached},
		{49, noGCForDel},
		{61, addOrder},
		{63, delOrder},
		{64, checkOrder},
		{65, gcPastErrors},
		{66, statusOrder},
	}
}

// order wants exactly these plugins called with a verb.
func (b *bench) order(verb string, want ...string) verdict {
	var got []string
	for _, r := range b.rec.records(verb) {
		got = append(got, r.typ)
	}
	if !slices.Equal(got, want) {
		return fail("%s reaches %v, %v was to be expected", verb, got, want)
	}
	return pass()
}

const notToday = "kit: not today"

// halts wants a call to fail with the error of the list's second plugin, after exactly these plugins.
func (b *bench) halts(verb string, l map[string]any, flags []string, want ...string) verdict {
	if err := b.rec.refuse(second, verb, "1.1.0", notToday); err != nil {
		return fail("%v", err)
	}
	if err := b.rec.forget(); err != nil {
		return fail("%v", err)
	}
	a := b.call(strings.ToLower(verb), l, flags...)
	if !a.refused() || !strings.Contains(a.text(), notToday) {
		return fail("%s fails with %q: %s", second, notToday, a)
	}
	return b.order(verb, want...)
}

func notAttached(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	if a := b.call("del", l); !a.ok() {
		return broken(wish(a))
	}
	a := b.call("check", l)
	if n := len(b.rec.records(check)); n > 0 {
		return notApplied(
			"`weft cni check` is a call by hand, and makes it (as cnitool does) without an attachment too: %d plugins are asked; %s", n, a,
		)
	}
	return pass()
}

func noGCForDel(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	if a := b.call("del", l); !a.ok() {
		return broken(wish(a))
	}
	if len(b.rec.records(gc)) > 0 {
		return fail("a DEL calls %d plugins with GC", len(b.rec.records(gc)))
	}
	return b.order(del, third, second, first)
}

func addOrder(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	if v := b.order(add, first, second, third); v.outcome != Pass {
		return v
	}
	return b.halts(add, l, []string{"--container-id", "kit-other"}, first, second)
}

func delOrder(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	if a := b.call("del", l); !a.ok() {
		return broken(wish(a))
	}
	if v := b.order(del, third, second, first); v.outcome != Pass {
		return v
	}
	return b.halts(del, l, nil, third, second)
}

func checkOrder(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	if a := b.call("check", l); !a.ok() {
		return broken(wish(a))
	}
	if v := b.order(check, first, second, third); v.outcome != Pass {
		return v
	}
	return b.halts(check, l, nil, first, second)
}

func gcPastErrors(b *bench) verdict {
	l := list(nil)
	for _, typ := range []string{first, second} {
		if err := b.rec.refuse(typ, gc, "1.1.0", notToday+" says "+typ); err != nil {
			return broken(err)
		}
	}
	a := b.call("gc", l)
	if v := b.order(gc, first, second, third); v.outcome != Pass {
		return v
	}
	for _, typ := range []string{first, second} {
		if !a.refused() || !strings.Contains(a.text(), notToday+" says "+typ) {
			return fail("the error of %s is not returned: %s", typ, a)
		}
	}
	return pass()
}

func statusOrder(b *bench) verdict {
	l := list(nil)
	if a := b.call("status", l); !a.ok() {
		return broken(wish(a))
	}
	if v := b.order(status, first, second, third); v.outcome != Pass {
		return v
	}
	return b.halts(status, l, nil, first, second)
}
