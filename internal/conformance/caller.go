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

// caller is a program of weft that executes plugins as a runtime.
type caller struct {
	name          string
	checks        []runtimeCheck
	notApplicable map[int]string         // reasons, by item
	start         func(b *testbed) error // prepares the testbed; optional
	call          func(b *testbed, verb string, list map[string]any, flags []string) response
}

// checkRuntime checks the runtime's items on weft's callers.
func (k *kit) checkRuntime(ctx context.Context) ([]Row, error) {
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
			v := notApplied("%s", c.notApplicable[item.Number])
			if i := slices.IndexFunc(c.checks, func(t runtimeCheck) bool { return t.item == item.Number }); i >= 0 {
				b, err := k.testbed(ctx, c)
				if err != nil {
					return nil, err
				}
				v = c.checks[i].run(b)
				b.close()
			}
			rows = append(rows, Row{Item: item, Subject: c.name, Outcome: v.outcome, Seen: v.seen})
		}
	}
	return rows, ctx.Err()
}

// cniCaller is weft's caller through libcni, which weft sandbox uses, too.
func cniCaller() caller {
	return caller{
		name: "weft cni", call: callWeftCNI,
		checks: slices.Concat(configChecks(), callChecks(), orderChecks(), inputChecks()),
		notApplicable: map[int]string{
			23: "`weft cni add` is called manually",
			52: "`weft cni` requires an existing namespace",
			53: "`weft cni` makes one call; weft sandbox serializes calls per pod (it has its own tests)",
			54: "`weft cni` makes one call",
			56: "`weft cni add` makes one call; weft sandbox sends the DEL (it has its own tests)",
			59: "`weft cni` does not own the namespace",
		},
	}
}

// callWeftCNI executes weft cni.
func callWeftCNI(b *testbed, verb string, list map[string]any, flags []string) response {
	conf := filepath.Join(b.dir, "conf", "10-kit.conflist")
	text, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(conf, text, 0o644)
	}
	if err != nil {
		return response{verb: strings.ToUpper(verb), exit: -1, err: err}
	}
	args := []string{"cni", verb, "--cni-bin-dir", b.rec.bin(), "--cni-cache-dir", filepath.Join(b.dir, "cache")}
	attaches := verb != "gc" && verb != "status"
	if attaches {
		args = append(args, "--container-id", testbedID, "--ifname", testbedIfName)
	}
	args = append(append(args, flags...), conf)
	if attaches {
		args = append(args, b.pod.Path())
	}
	return b.execute(verb, exec.Command(b.weft, args...), nil)
}

// execute runs a program on the testbed's node.
func (b *testbed) execute(verb string, cmd *exec.Cmd, stdin []byte) response {
	const timeout = 30 * time.Second
	a := response{verb: strings.ToUpper(verb), exit: -1}
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	var stdout, stderr limitedBuffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = bytes.NewReader(stdin), &stdout, &stderr, "/", waitDelay
	cmd.Env = append(cmd.Env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.err = b.host.Do(cmd.Start); a.err != nil {
		return a
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	_ = cmd.Wait() // the exit code is used
	a.hung = ctx.Err() != nil
	a.exit, a.stdout, a.stderr = cmd.ProcessState.ExitCode(), stdout.Bytes(), stderr.Bytes()
	return a
}
