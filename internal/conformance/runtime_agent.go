// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"sync"
	"time"
)

// secondAdd repeats an ADD: no plugin may be called. The agent may return an error or the same result.
func secondAdd(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	if err := b.rec.reset(); err != nil {
		return aborted(err)
	}
	b.call("add", l)
	if got := b.calls(); len(got) > 0 {
		return fail("a second ADD reaches %v", got)
	}
	return pass()
}

// unknownCheck checks that a CHECK after the DEL fails, without a call of a plugin.
func unknownCheck(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	if a := b.call("del", l); !a.ok() {
		return aborted(asError(a))
	}
	if a := b.call("check", l); !a.failed() {
		return fail("a CHECK after the DEL: %s", a)
	}
	if n := len(b.rec.records(check)); n > 0 {
		return fail("a CHECK after the DEL reaches %d plugins", n)
	}
	return pass()
}

// inParallel makes calls concurrently and returns their responses.
func inParallel(calls ...func() response) []response {
	out := make([]response, len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() { out[i] = call() })
	}
	wg.Wait()
	return out
}

// overlap returns two calls that ran at the same time.
func (b *testbed) overlap() (one, other record, found bool) {
	all := slices.DeleteFunc(b.rec.records(""), func(r record) bool { return r.start.IsZero() })
	for i, x := range all {
		for _, y := range all[i+1:] {
			if x.start.Before(y.end) && y.start.Before(x.end) {
				return x, y, true
			}
		}
	}
	return record{}, record{}, false
}

// serializedPerContainer attaches two interfaces of one container concurrently, then those of two containers.
func serializedPerContainer(b *testbed) verdict {
	if err := b.rec.setDelay(typeA, add); err != nil {
		return aborted(err)
	}
	l := pluginList(nil)
	for _, a := range inParallel(
		func() response { return b.call("add", l) },
		func() response { return b.call("add", l, "--ifname", "eth8") },
	) {
		if !a.ok() {
			return aborted(asError(a))
		}
	}
	if x, y, found := b.overlap(); found {
		return fail("%s is called for %s and %s of one container at the same time", x.typ, x.env["CNI_IFNAME"],
			y.env["CNI_IFNAME"])
	}
	if err := b.rec.reset(); err != nil {
		return aborted(err)
	}
	inParallel(
		func() response { return b.call("add", l, "--container-id", "kit-one") },
		func() response { return b.call("add", l, "--container-id", "kit-two") },
	)
	if _, _, found := b.overlap(); !found {
		return fail("calls for two containers are serialized")
	}
	return pass()
}

// gcExclusive calls GC during an ADD, and ADD during the GC.
func gcExclusive(b *testbed) verdict {
	for _, verb := range []string{add, gc} {
		if err := b.rec.setDelay(typeA, verb); err != nil {
			return aborted(err)
		}
	}
	const offset = 100 * time.Millisecond
	l := pluginList(nil)
	for _, a := range inParallel(
		func() response { return b.call("add", l) },
		func() response { time.Sleep(offset); return b.call("gc", l, "--valid", testbedID+"/"+testbedIfName) },
		func() response { time.Sleep(2 * offset); return b.call("add", l, "--container-id", "kit-two") },
	) {
		if !a.ok() {
			return aborted(asError(a))
		}
	}
	x, y, found := b.overlap()
	if found && x.verb != y.verb {
		return fail("%s of %s and %s of %s run at the same time", x.verb, x.env["CNI_CONTAINERID"], y.verb,
			y.env["CNI_CONTAINERID"])
	}
	return pass()
}

// failedAddCleanedUp checks that each plugin that a failed ADD has called gets a DEL.
func failedAddCleanedUp(b *testbed) verdict {
	if err := b.rec.setError(typeB, add, "1.1.0", refusal); err != nil {
		return aborted(err)
	}
	if a := b.call("add", pluginList(nil)); !a.failed() {
		return fail("%s fails: %s", typeB, a)
	}
	return b.expectCalls(del, typeB, typeA)
}

// recordedConfiguration changes the configuration between ADD and DEL.
func recordedConfiguration(b *testbed) verdict {
	if _, err := b.addNetwork(func(l map[string]any) { pluginOf(l, 0)["kit"] = "old" }); err != nil {
		return aborted(err)
	}
	if a := b.call("del", pluginList(func(l map[string]any) { pluginOf(l, 0)["kit"] = "new" })); !a.ok() {
		return aborted(asError(a))
	}
	if got := b.callOf(typeA, del).conf()["kit"]; got != "old" {
		return fail("DEL passes the new configuration, not that of the ADD")
	}
	return pass()
}
