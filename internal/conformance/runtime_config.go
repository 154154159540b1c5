// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-cmp/cmp"
)

// configChecks returns checks of how a runtime interprets a configuration.
func configChecks() []runtimeCheck {
	return []runtimeCheck{
		{1, unknownFieldsPassedOn},
		{2, func(b *testbed) verdict {
			return b.expectRejected(func(l map[string]any) { pluginOf(l, 1)["type"] = "../bin/" + typeB },
				"a plugin type with a path")
		}},
		{3, badNames},
		{4, reservedKeys},
		{5, func(b *testbed) verdict { return b.expectNotCalled("disableCheck", "check", check) }},
		{6, func(b *testbed) verdict { return b.expectNotCalled("disableGC", "gc", gc) }},
		{7, inlinedOnly},
		{8, aggregated},
		{9, highestVersion},
		{10, unknownFieldsPassedOn},
		{38, func(b *testbed) verdict { return b.expectNotCalled("disableCheck", "check", check) }},
		{71, protocolKeys},
	}
}

// addNetwork attaches a network and returns its list.
func (b *testbed) addNetwork(change func(map[string]any), flags ...string) (map[string]any, error) {
	l := pluginList(change)
	return l, asError(b.call("add", l, flags...))
}

func unknownFieldsPassedOn(b *testbed) verdict {
	l, err := b.addNetwork(nil)
	if err != nil {
		return aborted(err)
	}
	for _, verb := range []string{add, check, del} {
		if verb != add {
			if a := b.call(map[string]string{check: "check", del: "del"}[verb], l); !a.ok() {
				return aborted(asError(a))
			}
		}
		r := b.callOf(typeA, verb)
		if r == nil {
			return fail("%s does not reach the plugin", verb)
		}
		if d := cmp.Diff(pluginOf(l, 0)["unknown"], r.conf()["unknown"]); d != "" {
			return fail("%s: the unknown field differs: %s", verb, short(d))
		}
	}
	return pass()
}

// expectRejected checks that ADD fails without executing a plugin.
func (b *testbed) expectRejected(change func(map[string]any), what string) verdict {
	a := b.call("add", pluginList(change))
	if !a.failed() {
		return fail("%s: %s", what, a)
	}
	if n := len(b.rec.records("")); n > 0 {
		return fail("%s is rejected, but only after %d calls of plugins", what, n)
	}
	return pass()
}

func badNames(b *testbed) verdict {
	for _, name := range []string{"", "-kit", "../kit", "kit net", "kit/net"} {
		if v := b.expectRejected(func(l map[string]any) { l["name"] = name },
			fmt.Sprintf("the network name %q", name)); v.outcome != Pass {
			return v
		}
	}
	return pass()
}

// reservedKeys checks that keys of the runtime in a configuration are not passed to the plugin.
func reservedKeys(b *testbed) verdict {
	_, err := b.addNetwork(func(l map[string]any) {
		pluginOf(l, 0)["runtimeConfig"] = map[string]any{"portMappings": []any{map[string]any{"hostPort": 1}}}
	}, "--capability-args", `{"portMappings":[{"hostPort":2}]}`)
	if err != nil {
		return aborted(err)
	}
	want := map[string]any{"portMappings": []any{map[string]any{"hostPort": 2.0}}}
	if d := cmp.Diff(want, b.callOf(typeA, add).conf()["runtimeConfig"]); d != "" {
		return fail("runtimeConfig is the configuration's, not the runtime's: %s", short(d))
	}
	return pass()
}

func (b *testbed) expectNotCalled(key, verb, call string) verdict {
	l, err := b.addNetwork(func(l map[string]any) { l[key] = true })
	if err != nil {
		return aborted(err)
	}
	if a := b.call(verb, l); !a.ok() {
		return fail("with %s: %s", key, a)
	}
	if n := len(b.rec.records(call)); n > 0 {
		return fail("with %s: %d plugins are called with %s", key, n, call)
	}
	return pass()
}

// writePluginDir writes plugin configurations to the directory of the network kitnet.
func (b *testbed) writePluginDir(objects ...string) error {
	dir := filepath.Join(b.dir, "conf", "kitnet")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, typ := range objects {
		text, err := json.Marshal(map[string]any{"type": typ})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.conf", i)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// onlyFirst removes all plugins but the first one from the list.
func onlyFirst(l map[string]any) { l["plugins"] = l["plugins"].([]any)[:1] }

func inlinedOnly(b *testbed) verdict {
	if err := b.writePluginDir(typeB); err != nil {
		return aborted(err)
	}
	for _, exclusive := range []bool{false, true} {
		want := []string{typeA + " " + add, typeB + " " + add}
		if exclusive {
			want = want[:1]
		}
		if err := b.rec.reset(); err != nil {
			return aborted(err)
		}
		_, err := b.addNetwork(func(l map[string]any) {
			onlyFirst(l)
			l["loadOnlyInlinedPlugins"] = exclusive
		})
		if err != nil {
			return aborted(err)
		}
		if got := b.calls(); !slices.Equal(got, want) {
			return fail("loadOnlyInlinedPlugins %v: calls %v, want %v", exclusive, got, want)
		}
	}
	return pass()
}

func aggregated(b *testbed) verdict {
	if err := b.writePluginDir(typeB, typeC); err != nil {
		return aborted(err)
	}
	if _, err := b.addNetwork(onlyFirst); err != nil {
		return aborted(err)
	}
	want := []string{typeA + " " + add, typeB + " " + add, typeC + " " + add}
	if got := b.calls(); !slices.Equal(got, want) {
		return fail("calls %v, want %v", got, want)
	}
	if err := b.rec.reset(); err != nil {
		return aborted(err)
	}
	_, err := b.addNetwork(func(l map[string]any) {
		onlyFirst(l)
		l["name"] = "kitother"
	})
	if err != nil {
		return aborted(err)
	}
	if got := b.calls(); len(got) != 1 {
		return fail("the plugins of network kitnet are called for another network: %v", got)
	}
	return pass()
}

func highestVersion(b *testbed) verdict {
	_, err := b.addNetwork(func(l map[string]any) {
		l["cniVersion"] = "0.4.0"
		l["cniVersions"] = []any{"0.3.1", "1.0.0", "1.1.0", "0.4.0"}
	})
	if err != nil {
		return aborted(err)
	}
	if got := b.callOf(typeA, add).conf()["cniVersion"]; got != "1.1.0" {
		return fail("of the versions 0.4.0 and 0.3.1, 1.0.0, 1.1.0, 0.4.0 the plugin gets %v", got)
	}
	return pass()
}

func protocolKeys(b *testbed) verdict {
	l, err := b.addNetwork(func(l map[string]any) {
		pluginOf(l, 0)["cni.dev/valid-attachments"] = []any{map[string]any{"containerID": "kit", "ifname": "eth0"}}
		pluginOf(l, 0)["cni.dev/other"] = 1
	})
	if err != nil {
		return aborted(err)
	}
	if a := b.call("gc", l); !a.ok() {
		return aborted(asError(a))
	}
	for _, verb := range []string{add, gc} {
		r := b.callOf(typeA, verb)
		if r == nil {
			return fail("%s does not reach the plugin", verb)
		}
		for key, value := range r.conf() {
			if key == "cni.dev/other" || key == "cni.dev/valid-attachments" && verb == add {
				return fail("%s passes on %s of the configuration: %v", verb, key, value)
			}
		}
	}
	return pass()
}
