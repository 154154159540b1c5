// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// callTrials are about single calls of plugins: environment, namespace, standard input.
func callTrials() []trial {
	return []trial{
		{13, ownNamespace},
		{14, parameters},
		{58, cachedConfiguration},
		{60, searchPath},
	}
}

// inputTrials are about what a runtime inserts into a plugin's configuration.
func inputTrials() []trial {
	return []trial{
		{24, func(b *bench) verdict { return b.finalResult(del, check) }},
		{39, latestAdd},
		{40, sameParameters},
		{45, validAttachments},
		{62, func(b *bench) verdict { return b.finalResult(check) }},
		{67, versionAndName},
		{68, runtimeConfig},
		{69, prevResults},
		{70, noCapabilities},
	}
}

func ownNamespace(b *bench) verdict {
	if _, err := b.added(nil); err != nil {
		return broken(err)
	}
	id, err := b.host.ID()
	if err != nil {
		return broken(err)
	}
	if got, want := b.given(first, add).netns, fmt.Sprintf("net:[%d]", id); got != want {
		return fail("the plugin runs in %s, the runtime in %s", got, want)
	}
	return pass()
}

func parameters(b *bench) verdict {
	l, err := b.added(nil, "--cni-args", "KIT=1;IgnoreUnknown=1")
	if err != nil {
		return broken(err)
	}
	r := b.given(second, add)
	for key, want := range map[string]string{
		"CNI_COMMAND": add, "CNI_CONTAINERID": benchID, "CNI_NETNS": b.pod.Path(), "CNI_IFNAME": benchIf,
		"CNI_ARGS": "KIT=1;IgnoreUnknown=1",
	} {
		if r.env[key] != want {
			return fail("%s is %q, not %q", key, r.env[key], want)
		}
	}
	switch {
	case r.files != "there":
		return fail("CNI_NETNS does not exist when the plugin is executed")
	case r.conf()["type"] != object(l, 1)["type"]:
		return fail("standard input is not the plugin's configuration: %s", short(string(r.stdin)))
	}
	return pass()
}

// cachedConfiguration changes the file between ADD and DEL.
func cachedConfiguration(b *bench) verdict {
	if _, err := b.added(func(l map[string]any) { object(l, 0)["kit"] = "then" }); err != nil {
		return broken(err)
	}
	if a := b.call("del", list(func(l map[string]any) { object(l, 0)["kit"] = "now" })); !a.ok() {
		return broken(wish(a))
	}
	if got := b.given(first, del).conf()["kit"]; got != "then" {
		return notApplied(
			"`weft cni del` is given a configuration by hand, and uses it (as cnitool does); weft sandbox uses the one of the ADD, by its own tests",
		)
	}
	return pass()
}

func searchPath(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	for _, verb := range []string{"check", "gc", "status"} {
		if a := b.call(verb, l, validFlags(verb)...); !a.ok() {
			return broken(wish(a))
		}
	}
	if a := b.call("del", l); !a.ok() {
		return broken(wish(a))
	}
	for _, r := range b.rec.records("") {
		if r.env["CNI_PATH"] != b.rec.bin() {
			return fail("%s: CNI_PATH is %q, not %q", r.verb, r.env["CNI_PATH"], b.rec.bin())
		}
	}
	return pass()
}

// validFlags keep the bench's attachment through a GC.
func validFlags(verb string) []string {
	if verb != "gc" {
		return nil
	}
	return []string{"--valid", benchID + "/" + benchIf}
}

// address is that of a prevResult.
func prevAddress(r record) string {
	prev, _ := r.conf()["prevResult"].(map[string]any)
	ips, _ := prev["ips"].([]any)
	if len(ips) == 0 {
		return ""
	}
	ip, _ := ips[0].(map[string]any)
	s, _ := ip["address"].(string)
	return s
}

// The addresses that the recording plugins answer with.
const firstAddress, secondAddress, thirdAddress = "10.26.0.1/24", "10.26.0.2/24", "10.26.0.3/24"

// finalResult wants the last plugin's result in the prevResult of every plugin.
func (b *bench) finalResult(verbs ...string) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	slices.Sort(verbs) // CHECK before DEL
	for _, verb := range verbs {
		if a := b.call(strings.ToLower(verb), l); !a.ok() {
			return broken(wish(a))
		}
		for _, r := range b.rec.records(verb) {
			if got := prevAddress(r); got != thirdAddress {
				return fail("%s: %s gets a prevResult with the address %q, the final one is %s", verb, r.typ, got, thirdAddress)
			}
		}
		if len(b.rec.records(verb)) != 3 {
			return fail("%s reaches %d of 3 plugins", verb, len(b.rec.records(verb)))
		}
	}
	return pass()
}

// latestAdd attaches, detaches and attaches again, with another result.
func latestAdd(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	if a := b.call("del", l); !a.ok() {
		return broken(wish(a))
	}
	if err := b.rec.answer(third, add, benchResult(third, 76)); err != nil {
		return broken(err)
	}
	for _, verb := range []string{"add", "check"} {
		if a := b.call(verb, l); !a.ok() {
			return broken(wish(a))
		}
	}
	if got, want := prevAddress(*b.given(second, check)), "10.26.0.77/24"; got != want {
		return fail("the prevResult has the address %s, that of the latest ADD is %s", got, want)
	}
	return pass()
}

func sameParameters(b *bench) verdict {
	flags := []string{"--cni-args", "KIT=1", "--capability-args", `{"portMappings":[{"hostPort":2}]}`}
	l, err := b.added(nil, flags...)
	if err != nil {
		return broken(err)
	}
	if a := b.call("check", l, flags...); !a.ok() {
		return broken(wish(a))
	}
	then, now := b.given(first, add), b.given(first, check)
	for _, key := range []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"} {
		if then.env[key] != now.env[key] {
			return fail("%s was %q, and is %q", key, then.env[key], now.env[key])
		}
	}
	was, is := then.conf(), now.conf()
	delete(is, "prevResult")
	if d := cmp.Diff(was, is); d != "" {
		return fail("the configuration has changed: %s", short(d))
	}
	return pass()
}

func validAttachments(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	if a := b.call("gc", l, "--valid", benchID+"/"+benchIf); !a.ok() {
		return broken(wish(a))
	}
	want := []any{map[string]any{"containerID": benchID, "ifname": benchIf}}
	for _, typ := range []string{first, second, third} {
		r := b.given(typ, gc)
		if r == nil {
			return fail("GC does not reach %s", typ)
		}
		if d := cmp.Diff(want, r.conf()["cni.dev/valid-attachments"]); d != "" {
			return fail("%s gets another cni.dev/valid-attachments: %s", typ, short(d))
		}
	}
	return pass()
}

func versionAndName(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	for _, verb := range []string{"check", "gc", "status"} {
		if a := b.call(verb, l, validFlags(verb)...); !a.ok() {
			return broken(wish(a))
		}
	}
	for _, r := range b.rec.records("") {
		if c := r.conf(); c["cniVersion"] != "1.1.0" || c["name"] != "kitnet" {
			return fail("%s: cniVersion is %v, name is %v", r.verb, c["cniVersion"], c["name"])
		}
	}
	return pass()
}

func runtimeConfig(b *bench) verdict {
	_, err := b.added(nil, "--capability-args", `{"portMappings":[{"hostPort":2}],"dns":{"servers":["10.0.0.1"]}}`)
	if err != nil {
		return broken(err)
	}
	want := map[string]any{"portMappings": []any{map[string]any{"hostPort": 2.0}}}
	if d := cmp.Diff(want, b.given(first, add).conf()["runtimeConfig"]); d != "" {
		return fail("portMappings and dns are asked for, portMappings is a capability; runtimeConfig: %s", short(d))
	}
	if got := b.given(second, add).conf()["runtimeConfig"]; got != nil {
		return fail("a plugin without capabilities gets the runtimeConfig %v", got)
	}
	return pass()
}

// prevResults: none for the first plugin, and the one before's for the others.
func prevResults(b *bench) verdict {
	_, err := b.added(func(l map[string]any) {
		object(l, 0)["prevResult"] = benchResult("kit", 200)
	})
	if err != nil {
		return broken(err)
	}
	for i, want := range []string{"", firstAddress, secondAddress} {
		typ := []string{first, second, third}[i]
		if got := prevAddress(*b.given(typ, add)); got != want {
			return fail("%s gets a prevResult with the address %q, not %q", typ, got, want)
		}
	}
	return pass()
}

func noCapabilities(b *bench) verdict {
	_, err := b.added(nil, "--capability-args", `{"portMappings":[{"hostPort":2}]}`)
	if err != nil {
		return broken(err)
	}
	if got := b.given(first, add).conf()["capabilities"]; got != nil {
		return fail("the plugin gets capabilities: %v", got)
	}
	return pass()
}
