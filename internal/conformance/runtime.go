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

// bench is where a caller is judged: a network of three recording plugins, a node and a container.
type bench struct {
	ctx  context.Context
	dir  string
	weft string // the program; weft-cni is beside it
	by   caller
	host *netns.NS
	pod  *netns.NS
	rec  *recorder
	ends []func() // what stops what the bench has started

	mu      sync.Mutex
	results map[string]json.RawMessage // of ADDs, by attachment, for a caller whose runtime is the kit
}

// The recording plugins of the bench's network.
const first, second, third = "kit-a", "kit-b", "kit-c"

const benchID, benchIf = "kit-container", "eth7"

// trial is how an item of the runtime's side is judged.
type trial struct {
	item int
	run  func(b *bench) verdict
}

func (k *kit) bench(ctx context.Context, by caller) (*bench, error) {
	k.worlds++
	b := &bench{
		ctx: ctx, weft: k.cfg.Weft, by: by, results: map[string]json.RawMessage{},
		dir: filepath.Join(workDir, "worlds", fmt.Sprintf("kit%d", k.worlds)),
	}
	if err := os.MkdirAll(filepath.Join(b.dir, "conf"), 0o755); err != nil {
		return nil, err
	}
	var err error
	if b.rec, err = newRecorder(filepath.Join(b.dir, "recorder"), first, second, third); err != nil {
		return nil, err
	}
	if b.host, err = netns.New(filepath.Join(b.dir, "node")); err != nil {
		return nil, err
	}
	if b.pod, err = netns.New(filepath.Join(b.dir, "pod")); err != nil {
		return nil, err
	}
	for i, typ := range []string{first, second, third} {
		if err := b.rec.answer(typ, add, benchResult(typ, i)); err != nil {
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

// benchResult is what a recording plugin answers to ADD: each its own address, so that results can be told apart.
func benchResult(typ string, i int) map[string]any {
	return map[string]any{
		"cniVersion": "1.1.0",
		"interfaces": []any{map[string]any{"name": typ}},
		"ips":        []any{map[string]any{"address": fmt.Sprintf("10.26.0.%d/24", i+1), "interface": 0}},
	}
}

func (b *bench) close() {
	for _, end := range b.ends {
		end()
	}
	for _, ns := range []*netns.NS{b.host, b.pod} {
		_ = ns.Close()
		_ = netns.Remove(ns.Path())
	}
	_ = os.RemoveAll(b.dir)
}

// list is the bench's network; change may change it.
func list(change func(list map[string]any)) map[string]any {
	m := map[string]any{
		"cniVersion": "1.1.0", "name": "kitnet",
		"plugins": []any{
			map[string]any{
				"type": first, "unknown": map[string]any{"deep": []any{1.0, "x"}},
				"capabilities": map[string]any{"portMappings": true},
			},
			map[string]any{"type": second},
			map[string]any{"type": third, "capabilities": map[string]any{"bandwidth": true}},
		},
	}
	if change != nil {
		change(m)
	}
	return m
}

// object is a plugin of a list.
func object(list map[string]any, i int) map[string]any {
	m, _ := list["plugins"].([]any)[i].(map[string]any)
	return m
}

// call lets the caller make a call of a network, with flags of weft cni.
func (b *bench) call(verb string, list map[string]any, flags ...string) answer {
	return b.by.call(b, verb, list, flags)
}

// calls are "TYPE VERB" of all calls since the last forget.
func (b *bench) calls() []string {
	var out []string
	for _, r := range b.rec.records("") {
		out = append(out, r.typ+" "+r.verb)
	}
	return out
}

// given is what a plugin was given with a verb; nil when it was not executed.
func (b *bench) given(typ, verb string) *record {
	for _, r := range b.rec.records(verb) {
		if r.typ == typ {
			return &r
		}
	}
	return nil
}
