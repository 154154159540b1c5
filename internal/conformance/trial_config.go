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

// configTrials are about what a runtime makes of a configuration.
func configTrials() []trial {
	return []trial{
		{1, unknownHandedOn},
		{2, func(b *bench) verdict {
			return b.refuses(func(l map[string]any) { object(l, 1)["type"] = "../bin/" + second }, "a plugin type with a path")
		}},
		{3, badNames},
		{4, reservedKeys},
		{5, func(b *bench) verdict { return b.neverCalled("disableCheck", "check", check) }},
		{6, func(b *bench) verdict { return b.neverCalled("disableGC", "gc", gc) }},
		{7, inlinedOnly},
		{8, aggregated},
		{9, highestVersion},
		{10, unknownHandedOn},
		{38, func(b *bench) verdict { return b.neverCalled("disableCheck", "check", check) }},
		{71, protocolKeys},
	}
}

// added is a network that was attached.
func (b *bench) added(change func(map[string]any), flags ...string) (map[string]any, error) {
	l := list(change)
	return l, wish(b.call("add", l, flags...))
}

func unknownHandedOn(b *bench) verdict {
	l, err := b.added(nil)
	if err != nil {
		return broken(err)
	}
	for _, verb := range []string{add, check, del} {
		if verb != add {
			if a := b.call(map[string]string{check: "check", del: "del"}[verb], l); !a.ok() {
				return broken(wish(a))
			}
		}
		r := b.given(first, verb)
		if r == nil {
			return fail("%s does not reach the plugin", verb)
		}
		if d := cmp.Diff(object(l, 0)["unknown"], r.conf()["unknown"]); d != "" {
			return fail("%s: the unknown field has changed: %s", verb, short(d))
		}
	}
	return pass()
}

// refuses wants an ADD that executes no plugin at all.
func (b *bench) refuses(change func(map[string]any), what string) verdict {
	a := b.call("add", list(change))
	if !a.refused() {
		return fail("%s: %s", what, a)
	}
	if n := len(b.rec.records("")); n > 0 {
		return fail("%s is refused, but only after %d calls of plugins", what, n)
	}
	return pass()
}

func badNames(b *bench) verdict {
	for _, name := range []string{"", "-kit", "../kit", "kit net", "kit/net"} {
		if v := b.refuses(func(l map[string]any) { l["name"] = name },
			fmt.Sprintf("the network name %q", name)); v.outcome != Pass {
			return v
		}
	}
	return pass()
}

// reservedKeys: what a configuration says in the runtime's keys is not what the plugin gets.
func reservedKeys(b *bench) verdict {
	_, err := b.added(func(l map[string]any) {
		object(l, 0)["runtimeConfig"] = map[string]any{"portMappings": []any{map[string]any{"hostPort": 1}}}
	}, "--capability-args", `{"portMappings":[{"hostPort":2}]}`)
	if err != nil {
		return broken(err)
	}
	want := map[string]any{"portMappings": []any{map[string]any{"hostPort": 2.0}}}
	if d := cmp.Diff(want, b.given(first, add).conf()["runtimeConfig"]); d != "" {
		return fail("runtimeConfig is the configuration's, not the runtime's: %s", short(d))
	}
	return pass()
}

func (b *bench) neverCalled(key, verb, call string) verdict {
	l, err := b.added(func(l map[string]any) { l[key] = true })
	if err != nil {
		return broken(err)
	}
	if a := b.call(verb, l); !a.ok() {
		return fail("with %s: %s", key, a)
	}
	if n := len(b.rec.records(call)); n > 0 {
		return fail("with %s: %d plugins are called with %s", key, n, call)
	}
	return pass()
}

// folder puts plugin objects into the directory of the network kitnet.
func (b *bench) folder(objects ...string) error {
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

// inlined leaves only the first plugin in the list.
func inlined(l map[string]any) { l["plugins"] = l["plugins"].([]any)[:1] }

func inlinedOnly(b *bench) verdict {
	if err := b.folder(second); err != nil {
		return broken(err)
	}
	for _, alone := range []bool{false, true} {
		want := []string{first + " " + add, second + " " + add}
		if alone {
			want = want[:1]
		}
		if err := b.rec.forget(); err != nil {
			return broken(err)
		}
		_, err := b.added(func(l map[string]any) {
			inlined(l)
			l["loadOnlyInlinedPlugins"] = alone
		})
		if err != nil {
			return broken(err)
		}
		if got := b.calls(); !slices.Equal(got, want) {
			return fail("loadOnlyInlinedPlugins %v: called are %v, %v was to be expected", alone, got, want)
		}
	}
	return pass()
}

func aggregated(b *bench) verdict {
	if err := b.folder(second, third); err != nil {
		return broken(err)
	}
	if _, err := b.added(inlined); err != nil {
		return broken(err)
	}
	want := []string{first + " " + add, second + " " + add, third + " " + add}
	if got := b.calls(); !slices.Equal(got, want) {
		return fail("called are %v, %v was to be expected", got, want)
	}
	if err := b.rec.forget(); err != nil {
		return broken(err)
	}
	_, err := b.added(func(l map[string]any) {
		inlined(l)
		l["name"] = "kitother"
	})
	if err != nil {
		return broken(err)
	}
	if got := b.calls(); len(got) != 1 {
		return fail("the plugins of network kitnet are called for another network: %v", got)
	}
	return pass()
}

func highestVersion(b *bench) verdict {
	_, err := b.added(func(l map[string]any) {
		l["cniVersion"] = "0.4.0"
		l["cniVersions"] = []any{"0.3.1", "1.0.0", "1.1.0", "0.4.0"}
	})
	if err != nil {
		return broken(err)
	}
	if got := b.given(first, add).conf()["cniVersion"]; got != "1.1.0" {
		return fail("of 0.4.0 and 0.3.1, 1.0.0, 1.1.0, 0.4.0 the plugin gets %v", got)
	}
	return pass()
}

func protocolKeys(b *bench) verdict {
	l, err := b.added(func(l map[string]any) {
		object(l, 0)["cni.dev/valid-attachments"] = []any{map[string]any{"containerID": "kit", "ifname": "eth0"}}
		object(l, 0)["cni.dev/other"] = 1
	})
	if err != nil {
		return broken(err)
	}
	if a := b.call("gc", l); !a.ok() {
		return broken(wish(a))
	}
	for _, verb := range []string{add, gc} {
		r := b.given(first, verb)
		if r == nil {
			return fail("%s does not reach the plugin", verb)
		}
		for key, value := range r.conf() {
			if key == "cni.dev/other" || key == "cni.dev/valid-attachments" && verb == add {
				return fail("%s hands on %s of the configuration: %v", verb, key, value)
			}
		}
	}
	return pass()
}
