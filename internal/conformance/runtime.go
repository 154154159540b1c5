// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// caller is the name of the program that is judged on the runtime's items.
const caller = "weft cni"

// bench is where a caller is judged: a network of three recording plugins, a node and a container.
type bench struct {
	ctx  context.Context
	dir  string
	weft string
	host *netns.NS
	pod  *netns.NS
	rec  *recorder
}

// The recording plugins of the bench's network.
const first, second, third = "kit-a", "kit-b", "kit-c"

const benchID, benchIf = "kit-container", "eth7"

// trial is how an item of the runtime's side is judged.
type trial struct {
	item int
	run  func(b *bench) verdict
}

// judgeRuntime makes the rows of the runtime's side.
func (k *kit) judgeRuntime(ctx context.Context) ([]Row, error) {
	table := map[int]func(*bench) verdict{}
	for _, t := range slices.Concat(configTrials(), callTrials(), orderTrials(), inputTrials()) {
		table[t.item] = t.run
	}
	why := notJudged()
	var rows []Row
	for _, item := range Items() {
		if item.Side != "R" || len(k.cfg.Items) > 0 && !slices.Contains(k.cfg.Items, item.Number) {
			continue
		}
		v := notApplied("%s", why[item.Number])
		if run := table[item.Number]; run != nil {
			b, err := k.bench(ctx)
			if err != nil {
				return nil, err
			}
			v = run(b)
			b.close()
		}
		rows = append(rows, Row{Item: item, Judged: caller, Outcome: v.outcome, Seen: v.seen})
	}
	return rows, ctx.Err()
}

// notJudged are the items that a caller which only makes single calls cannot keep or break.
func notJudged() map[int]string {
	return map[int]string{
		23: "whoever calls `weft cni add` by hand decides how often; the runtime, weft sandbox, is judged by its own tests",
		52: "`weft cni` is given a namespace; it refuses to go on without one (item 14 sees it there)",
		53: "`weft cni` makes one call; weft sandbox does one thing after the other for a pod, by its own tests",
		54: "`weft cni` makes one call; the agent holds GC apart from ADD and DEL by its own tests",
		56: "`weft cni add` makes one call; weft sandbox sends the DEL, by its own tests",
		59: "`weft cni` is given a namespace, and leaves it to its owner",
	}
}

func (k *kit) bench(ctx context.Context) (*bench, error) {
	k.worlds++
	b := &bench{ctx: ctx, weft: k.cfg.Weft, dir: filepath.Join(workDir, "worlds", fmt.Sprintf("kit%d", k.worlds))}
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
			map[string]any{"type": first, "unknown": map[string]any{"deep": []any{1.0, "x"}}, "capabilities": map[string]any{"portMappings": true}},
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

// call lets the caller make a call of a network.
func (b *bench) call(verb string, list map[string]any, flags ...string) answer {
	a := answer{verb: strings.ToUpper(verb), exit: -1}
	conf := filepath.Join(b.dir, "conf", "10-kit.conflist")
	text, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(conf, text, 0o644)
	}
	if err != nil {
		a.err = err
		return a
	}
	args := []string{"cni", verb, "--cni-bin-dir", b.rec.bin(), "--cni-cache-dir", filepath.Join(b.dir, "cache")}
	if verb != "gc" && verb != "status" {
		args = append(args, "--container-id", benchID, "--ifname", benchIf)
	}
	args = append(args, flags...)
	args = append(args, conf)
	if verb != "gc" && verb != "status" {
		args = append(args, b.pod.Path())
	}
	const most = 30 * time.Second
	ctx, cancel := context.WithTimeout(b.ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.weft, args...)
	var stdout, stderr limited
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &stdout, &stderr, "/", lastWords
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if a.err = b.host.Do(cmd.Start); a.err != nil {
		return a
	}
	_ = cmd.Wait() // the exit code says it
	a.hung = ctx.Err() != nil
	a.exit, a.stdout, a.stderr = cmd.ProcessState.ExitCode(), stdout.Bytes(), stderr.Bytes()
	return a
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
