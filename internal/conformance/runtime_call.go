// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// callChecks returns checks of single calls of plugins: environment, namespace, standard input.
func callChecks() []runtimeCheck {
	return []runtimeCheck{
		{13, ownNamespace},
		{14, parameters},
		{58, cachedConfiguration},
		{60, searchPath},
	}
}

// inputChecks returns checks of the keys that a runtime inserts into a plugin's configuration.
func inputChecks() []runtimeCheck {
	return []runtimeCheck{
		{24, func(b *testbed) verdict { return b.finalResult(del, check) }},
		{39, latestAdd},
		{40, sameParameters},
		{45, validAttachments},
		{62, func(b *testbed) verdict { return b.finalResult(check) }},
		{67, versionAndName},
		{68, runtimeConfig},
		{69, prevResults},
		{70, noCapabilities},
	}
}

func ownNamespace(b *testbed) verdict {
	if _, err := b.addNetwork(nil); err != nil {
		return aborted(err)
	}
	id, err := b.host.ID()
	if err != nil {
		return aborted(err)
	}
	if got, want := b.callOf(typeA, add).netns, fmt.Sprintf("net:[%d]", id); got != want {
		return fail("the plugin runs in %s, the runtime in %s", got, want)
	}
	return pass()
}

func parameters(b *testbed) verdict {
	l, err := b.addNetwork(nil, "--cni-args", "KIT=1;IgnoreUnknown=1")
	if err != nil {
		return aborted(err)
	}
	r := b.callOf(typeB, add)
	for key, want := range map[string]string{
		"CNI_COMMAND": add, "CNI_CONTAINERID": testbedID, "CNI_NETNS": b.pod.Path(), "CNI_IFNAME": testbedIfName,
		"CNI_ARGS": "KIT=1;IgnoreUnknown=1",
	} {
		if r.env[key] != want {
			return fail("%s is %q, not %q", key, r.env[key], want)
		}
	}
	switch {
	case r.netnsState != "there":
		return fail("CNI_NETNS does not exist when the plugin is executed")
	case r.conf()["type"] != pluginOf(l, 1)["type"]:
		return fail("standard input is not the plugin's configuration: %s", short(string(r.stdin)))
	}
	return pass()
}

// cachedConfiguration changes the file between ADD and DEL.
func cachedConfiguration(b *testbed) verdict {
	if _, err := b.addNetwork(func(l map[string]any) { pluginOf(l, 0)["kit"] = "old" }); err != nil {
		return aborted(err)
	}
	if a := b.call("del", pluginList(func(l map[string]any) { pluginOf(l, 0)["kit"] = "new" })); !a.ok() {
		return aborted(asError(a))
	}
	if got := b.callOf(typeA, del).conf()["kit"]; got != "old" {
		return notApplied(
			"`weft cni del` uses the configuration of its argument (as cnitool does); weft sandbox uses the one of the ADD (it has its own tests)",
		)
	}
	return pass()
}

func searchPath(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	for _, verb := range []string{"check", "gc", "status"} {
		if a := b.call(verb, l, validFlags(verb)...); !a.ok() {
			return aborted(asError(a))
		}
	}
	if a := b.call("del", l); !a.ok() {
		return aborted(asError(a))
	}
	for _, r := range b.rec.records("") {
		if r.env["CNI_PATH"] != b.rec.bin() {
			return fail("%s: CNI_PATH is %q, not %q", r.verb, r.env["CNI_PATH"], b.rec.bin())
		}
	}
	return pass()
}

// validFlags returns flags so that a GC keeps the testbed's attachment.
func validFlags(verb string) []string {
	if verb != "gc" {
		return nil
	}
	return []string{"--valid", testbedID + "/" + testbedIfName}
}

// prevAddress returns the address in prevResult.
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

// The addresses in the results of the recording plugins.
const firstAddress, secondAddress, thirdAddress = "10.26.0.1/24", "10.26.0.2/24", "10.26.0.3/24"

// finalResult checks that every plugin gets the last plugin's result as prevResult.
func (b *testbed) finalResult(verbs ...string) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	slices.Sort(verbs) // CHECK before DEL
	for _, verb := range verbs {
		if a := b.call(strings.ToLower(verb), l); !a.ok() {
			return aborted(asError(a))
		}
		for _, r := range b.rec.records(verb) {
			if got := prevAddress(r); got != thirdAddress {
				return fail("%s: %s gets a prevResult with the address %q, the final result has %s", verb, r.typ, got, thirdAddress)
			}
		}
		if len(b.rec.records(verb)) != 3 {
			return fail("%s reaches %d of 3 plugins", verb, len(b.rec.records(verb)))
		}
	}
	return pass()
}

// latestAdd attaches, detaches and attaches again with a different result.
func latestAdd(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	if a := b.call("del", l); !a.ok() {
		return aborted(asError(a))
	}
	if err := b.rec.setResult(typeC, add, recordedResult(typeC, 76)); err != nil {
		return aborted(err)
	}
	for _, verb := range []string{"add", "check"} {
		if a := b.call(verb, l); !a.ok() {
			return aborted(asError(a))
		}
	}
	if got, want := prevAddress(*b.callOf(typeB, check)), "10.26.0.77/24"; got != want {
		return fail("prevResult has the address %s, the latest ADD returned %s", got, want)
	}
	return pass()
}

func sameParameters(b *testbed) verdict {
	flags := []string{"--cni-args", "KIT=1", "--capability-args", `{"portMappings":[{"hostPort":2}]}`}
	l, err := b.addNetwork(nil, flags...)
	if err != nil {
		return aborted(err)
	}
	if a := b.call("check", l, flags...); !a.ok() {
		return aborted(asError(a))
	}
	atAdd, atCheck := b.callOf(typeA, add), b.callOf(typeA, check)
	for _, key := range []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"} {
		if atAdd.env[key] != atCheck.env[key] {
			return fail("%s was %q at ADD and is %q at CHECK", key, atAdd.env[key], atCheck.env[key])
		}
	}
	want, got := atAdd.conf(), atCheck.conf()
	delete(got, "prevResult")
	if d := cmp.Diff(want, got); d != "" {
		return fail("the configuration differs: %s", short(d))
	}
	return pass()
}

func validAttachments(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	if a := b.call("gc", l, "--valid", testbedID+"/"+testbedIfName); !a.ok() {
		return aborted(asError(a))
	}
	want := []any{map[string]any{"containerID": testbedID, "ifname": testbedIfName}}
	for _, typ := range []string{typeA, typeB, typeC} {
		r := b.callOf(typ, gc)
		if r == nil {
			return fail("GC does not reach %s", typ)
		}
		if d := cmp.Diff(want, r.conf()["cni.dev/valid-attachments"]); d != "" {
			return fail("%s gets different cni.dev/valid-attachments: %s", typ, short(d))
		}
	}
	return pass()
}

func versionAndName(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	for _, verb := range []string{"check", "gc", "status"} {
		if a := b.call(verb, l, validFlags(verb)...); !a.ok() {
			return aborted(asError(a))
		}
	}
	for _, r := range b.rec.records("") {
		if c := r.conf(); c["cniVersion"] != "1.1.0" || c["name"] != "kitnet" {
			return fail("%s: cniVersion is %v, name is %v", r.verb, c["cniVersion"], c["name"])
		}
	}
	return pass()
}

func runtimeConfig(b *testbed) verdict {
	_, err := b.addNetwork(nil, "--capability-args", `{"portMappings":[{"hostPort":2}],"dns":{"servers":["10.0.0.1"]}}`)
	if err != nil {
		return aborted(err)
	}
	want := map[string]any{"portMappings": []any{map[string]any{"hostPort": 2.0}}}
	if d := cmp.Diff(want, b.callOf(typeA, add).conf()["runtimeConfig"]); d != "" {
		return fail("portMappings and dns are requested, portMappings is a capability; runtimeConfig: %s", short(d))
	}
	if got := b.callOf(typeB, add).conf()["runtimeConfig"]; got != nil {
		return fail("a plugin without capabilities gets the runtimeConfig %v", got)
	}
	return pass()
}

// prevResults checks that the first plugin gets no prevResult, and the others the previous plugin's result.
func prevResults(b *testbed) verdict {
	_, err := b.addNetwork(func(l map[string]any) {
		pluginOf(l, 0)["prevResult"] = recordedResult("kit", 200)
	})
	if err != nil {
		return aborted(err)
	}
	for i, want := range []string{"", firstAddress, secondAddress} {
		typ := []string{typeA, typeB, typeC}[i]
		if got := prevAddress(*b.callOf(typ, add)); got != want {
			return fail("%s gets a prevResult with the address %q, not %q", typ, got, want)
		}
	}
	return pass()
}

func noCapabilities(b *testbed) verdict {
	_, err := b.addNetwork(nil, "--capability-args", `{"portMappings":[{"hostPort":2}]}`)
	if err != nil {
		return aborted(err)
	}
	if got := b.callOf(typeA, add).conf()["capabilities"]; got != nil {
		return fail("the plugin gets capabilities: %v", got)
	}
	return pass()
}
