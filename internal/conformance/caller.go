// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// caller is a program of weft's that executes plugins.
type caller struct {
	name   string
	trials []trial
	why    map[int]string       // of the items that it is not judged on
	start  func(b *bench) error // what it needs; may be nil
	call   func(b *bench, verb string, list map[string]any, flags []string) answer
}

// judgeRuntime makes the rows of the runtime's side.
func (k *kit) judgeRuntime(ctx context.Context) ([]Row, error) {
	callers := []caller{cniCaller()}
	if dir := filepath.Dir(k.cfg.Weft); isProgram(filepath.Join(dir, shimName)) &&
		isProgram(filepath.Join(dir, agentName)) {
		callers = append(callers, agentCaller())
	}
	var rows []Row
	for _, c := range callers {
		k.progress(c.name)
		for _, item := range Items() {
			if item.Side != "R" || len(k.cfg.Items) > 0 && !slices.Contains(k.cfg.Items, item.Number) {
				continue
			}
			v := notApplied("%s", c.why[item.Number])
			if i := slices.IndexFunc(c.trials, func(t trial) bool { return t.item == item.Number }); i >= 0 {
				b, err := k.bench(ctx, c)
				if err != nil {
					return nil, err
				}
				v = c.trials[i].run(b)
				b.close()
			}
			rows = append(rows, Row{Item: item, Judged: c.name, Outcome: v.outcome, Seen: v.seen})
		}
	}
	return rows, ctx.Err()
}

// cniCaller is weft's caller by libcni, which weft sandbox uses too.
func cniCaller() caller {
	return caller{
		name: "weft cni", call: byHand,
		trials: slices.Concat(configTrials(), callTrials(), orderTrials(), inputTrials()),
		why: map[int]string{
			23: "whoever calls `weft cni add` by hand decides how often",
			52: "`weft cni` is given a namespace, and does nothing without one",
			53: "`weft cni` makes one call; weft sandbox does one thing after the other for a pod, by its own tests",
			54: "`weft cni` makes one call",
			56: "`weft cni add` makes one call; weft sandbox sends the DEL, by its own tests",
			59: "`weft cni` is given a namespace, and leaves it to its owner",
		},
	}
}

// byHand executes weft cni.
func byHand(b *bench, verb string, list map[string]any, flags []string) answer {
	conf := filepath.Join(b.dir, "conf", "10-kit.conflist")
	text, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(conf, text, 0o644)
	}
	if err != nil {
		return answer{verb: strings.ToUpper(verb), exit: -1, err: err}
	}
	args := []string{"cni", verb, "--cni-bin-dir", b.rec.bin(), "--cni-cache-dir", filepath.Join(b.dir, "cache")}
	attaches := verb != "gc" && verb != "status"
	if attaches {
		args = append(args, "--container-id", benchID, "--ifname", benchIf)
	}
	args = append(append(args, flags...), conf)
	if attaches {
		args = append(args, b.pod.Path())
	}
	return b.execute(verb, exec.Command(b.weft, args...), nil)
}

// execute runs a program on the bench's node.
func (b *bench) execute(verb string, cmd *exec.Cmd, stdin []byte) answer {
	const most = 30 * time.Second
	a := answer{verb: strings.ToUpper(verb), exit: -1}
	ctx, cancel := context.WithTimeout(b.ctx, most)
	defer cancel()
	var stdout, stderr limited
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = bytes.NewReader(stdin), &stdout, &stderr, "/", lastWords
	cmd.Env = append(cmd.Env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.err = b.host.Do(cmd.Start); a.err != nil {
		return a
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	_ = cmd.Wait() // the exit code says it
	a.hung = ctx.Err() != nil
	a.exit, a.stdout, a.stderr = cmd.ProcessState.ExitCode(), stdout.Bytes(), stderr.Bytes()
	return a
}
