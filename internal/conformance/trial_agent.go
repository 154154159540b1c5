// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"sync"
	"time"
)

// secondAdd attaches again what is attached already: no plugin may hear of it. Whether the caller hears an error, or
// the result once more, is the agent's to say.
func secondAdd(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	if err := b.rec.forget(); err != nil {
		return broken(err)
	}
	b.call("add", l)
	if got := b.calls(); len(got) > 0 {
		return fail("a second ADD reaches %v", got)
	}
	return pass()
}

// unknownCheck wants the CHECK of what is not attached any more refused, before any plugin is asked.
func unknownCheck(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	if a := b.call("del", l); !a.ok() {
		return broken(wish(a))
	}
	if a := b.call("check", l); !a.refused() {
		return fail("a CHECK after the DEL: %s", a)
	}
	if n := len(b.rec.records(check)); n > 0 {
		return fail("a CHECK after the DEL reaches %d plugins", n)
	}
	return pass()
}

// together makes calls at the same time and gives their answers.
func together(calls ...func() answer) []answer {
	out := make([]answer, len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() { out[i] = call() })
	}
	wg.Wait()
	return out
}

// overlap finds two calls that were under way at the same time.
func (b *bench) overlap() (one, other record, found bool) {
	all := slices.DeleteFunc(b.rec.records(""), func(r record) bool { return r.begun.IsZero() })
	for i, x := range all {
		for _, y := range all[i+1:] {
			if x.begun.Before(y.ended) && y.begun.Before(x.ended) {
				return x, y, true
			}
		}
	}
	return record{}, record{}, false
}

// oneAfterTheOther attaches two interfaces of one container at once, then those of two containers.
func oneAfterTheOther(b *bench) verdict {
	if err := b.rec.slow(first, add); err != nil {
		return broken(err)
	}
	l := list(nil)
	for _, a := range together(
		func() answer { return b.call("add", l) },
		func() answer { return b.call("add", l, "--ifname", "eth8") },
	) {
		if !a.ok() {
			return broken(wish(a))
		}
	}
	if x, y, found := b.overlap(); found {
		return fail("%s is called for %s and %s of one container at the same time", x.typ, x.env["CNI_IFNAME"],
			y.env["CNI_IFNAME"])
	}
	if err := b.rec.forget(); err != nil {
		return broken(err)
	}
	together(
		func() answer { return b.call("add", l, "--container-id", "kit-one") },
		func() answer { return b.call("add", l, "--container-id", "kit-two") },
	)
	if _, _, found := b.overlap(); !found {
		return fail("calls for two containers are made one after the other")
	}
	return pass()
}

// gcAlone lets a GC come while an ADD is under way, and an ADD while the GC is.
func gcAlone(b *bench) verdict {
	for _, verb := range []string{add, gc} {
		if err := b.rec.slow(first, verb); err != nil {
			return broken(err)
		}
	}
	const head = 100 * time.Millisecond
	l := list(nil)
	for _, a := range together(
		func() answer { return b.call("add", l) },
		func() answer { time.Sleep(head); return b.call("gc", l, "--valid", benchID+"/"+benchIf) },
		func() answer { time.Sleep(2 * head); return b.call("add", l, "--container-id", "kit-two") },
	) {
		if !a.ok() {
			return broken(wish(a))
		}
	}
	x, y, found := b.overlap()
	if found && x.verb != y.verb {
		return fail("%s of %s and %s of %s are under way at the same time", x.verb, x.env["CNI_CONTAINERID"], y.verb,
			y.env["CNI_CONTAINERID"])
	}
	return pass()
}

// failedUndone wants a DEL for every plugin that a failed ADD has reached.
func failedUndone(b *bench) verdict {
	if err := b.rec.refuse(second, add, "1.1.0", notToday); err != nil {
		return broken(err)
	}
	if a := b.call("add", list(nil)); !a.refused() {
		return fail("%s fails: %s", second, a)
	}
	return b.order(del, second, first)
}

// recordedConfiguration changes the configuration between ADD and DEL.
func recordedConfiguration(b *bench) verdict {
	if _, err := b.added(func(l map[string]any) { object(l, 0)["kit"] = "then" }); err != nil {
		return broken(err)
	}
	if a := b.call("del", list(func(l map[string]any) { object(l, 0)["kit"] = "now" })); !a.ok() {
		return broken(wish(a))
	}
	if got := b.given(first, del).conf()["kit"]; got != "then" {
		return fail("DEL gives the plugin the configuration of now, not that of the ADD")
	}
	return pass()
}
