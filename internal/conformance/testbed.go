// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/weft-net/weft/internal/netns"
)

// testbed is the environment for a caller: a network of three recording plugins, a node and a container.
type testbed struct {
	ctx      context.Context
	dir      string
	weft     string // the program; weft-cni is in the same directory
	caller   caller
	host     *netns.NS
	pod      *netns.NS
	rec      *recorder
	cleanups []func() // in order

	mu      sync.Mutex
	results map[string]json.RawMessage // of ADDs, by attachment, if the kit is the caller's runtime
}

// The recording plugins of the testbed's network.
const typeA, typeB, typeC = "kit-a", "kit-b", "kit-c"

const testbedID, testbedIfName = "kit-container", "eth7"

// runtimeCheck checks a runtime's item.
type runtimeCheck struct {
	item int
	run  func(b *testbed) verdict
}

func (k *kit) testbed(ctx context.Context, by caller) (*testbed, error) {
	k.worlds++
	b := &testbed{
		ctx: ctx, weft: k.cfg.Weft, caller: by, results: map[string]json.RawMessage{},
		dir: filepath.Join(workDir, "worlds", fmt.Sprintf("kit%d", k.worlds)),
	}
	if err := os.MkdirAll(filepath.Join(b.dir, "conf"), 0o755); err != nil {
		return nil, err
	}
	var err error
	if b.rec, err = newRecorder(filepath.Join(b.dir, "recorder"), typeA, typeB, typeC); err != nil {
		return nil, err
	}
	if b.host, err = netns.New(filepath.Join(b.dir, "node")); err != nil {
		return nil, err
	}
	if b.pod, err = netns.New(filepath.Join(b.dir, "pod")); err != nil {
		return nil, err
	}
	for i, typ := range []string{typeA, typeB, typeC} {
		if err := b.rec.setResult(typ, add, recordedResult(typ, i)); err != nil {
			return nil, err
		}
	}
	if by.start == nil {
		return b, nil
	}
	if err := by.start(b); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// recordedResult returns the ADD result of a recording plugin: each has a different address to distinguish results.
func recordedResult(typ string, i int) map[string]any {
	return map[string]any{
		"cniVersion": "1.1.0",
		"interfaces": []any{map[string]any{"name": typ}},
		"ips":        []any{map[string]any{"address": fmt.Sprintf("10.26.0.%d/24", i+1), "interface": 0}},
	}
}

func (b *testbed) close() {
	for _, end := range b.cleanups {
		end()
	}
	for _, ns := range []*netns.NS{b.host, b.pod} {
		_ = ns.Close()
		_ = netns.Remove(ns.Path())
	}
	_ = os.RemoveAll(b.dir)
}

// pluginList returns the testbed's network; change may modify it.
func pluginList(change func(list map[string]any)) map[string]any {
	m := map[string]any{
		"cniVersion": "1.1.0", "name": "kitnet",
		"plugins": []any{
			map[string]any{
				"type": typeA, "unknown": map[string]any{"deep": []any{1.0, "x"}},
				"capabilities": map[string]any{"portMappings": true},
			},
			map[string]any{"type": typeB},
			map[string]any{"type": typeC, "capabilities": map[string]any{"bandwidth": true}},
		},
	}
	if change != nil {
		change(m)
	}
	return m
}

// pluginOf returns plugin i of a list.
func pluginOf(list map[string]any, i int) map[string]any {
	m, _ := list["plugins"].([]any)[i].(map[string]any)
	return m
}

// call makes a call by the caller, with flags of weft cni.
func (b *testbed) call(verb string, list map[string]any, flags ...string) response {
	return b.caller.call(b, verb, list, flags)
}

// calls returns "TYPE VERB" of all calls since the last reset.
func (b *testbed) calls() []string {
	var out []string
	for _, r := range b.rec.records("") {
		out = append(out, r.typ+" "+r.verb)
	}
	return out
}

// callOf returns the call of a plugin with a verb; nil if it was not called.
func (b *testbed) callOf(typ, verb string) *record {
	for _, r := range b.rec.records(verb) {
		if r.typ == typ {
			return &r
		}
	}
	return nil
}
