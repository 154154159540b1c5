// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/teardown"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Restart restarts a process of a node: its agent, or its sandbox runtime. Pods survive both.
type Restart struct {
	Dir Dir
	// Self is this program, and Env the environment of the process.
	Self string
	Env  []string
	Logf Progress
	// Runtime restarts the sandbox runtime instead of the agent.
	Runtime bool
}

// Node restarts the process of a node, which may be dead.
func (r Restart) Node(ctx context.Context, name string) error {
	unlock, m, err := r.Dir.LockUp(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !m.Layout.Has(name) {
		return model.Errorf(model.CodeInvalidConf, "use one of the nodes that `weft lab status` lists", "node %q not found", name)
	}
	role := roleAgent
	if r.Runtime {
		role = roleSandbox
	}
	if err := r.Dir.endProcess(ctx, name, role); err != nil {
		return fmt.Errorf("node %s: %s: %w", name, role, err)
	}
	u := Resume(r.Dir, m, r.Self, r.Env, r.Logf)
	if err := u.startRole(ctx, m.Layout.Find(name), role, func(error) {}); err != nil {
		return fmt.Errorf("%w; its log is %s", err, r.Dir.Node(name, role+".log"))
	}
	r.Logf("%s of %s restarted", role, name)
	return nil
}

// Resume returns the Up of a lab that is up, which starts processes of the same programs. self is this program, and env the
// environment of the processes.
func Resume(d Dir, m Marker, self string, env []string, logf Progress) Up {
	return Up{
		Dir: d, Spec: m.Layout.Spec, Self: self, Env: env, Logf: logf, AgentEnv: m.AgentEnv,
		Agent: cmp.Or(m.Agent, filepath.Join(filepath.Dir(self), "weft-agent")),
	}
}

// startRole starts one process of a node, and waits until it listens.
func (u Up) startRole(ctx context.Context, n layout.Node, role string, died func(error)) error {
	ns, err := netns.Open(u.Dir.NS(n.Name))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	if err := u.startProcess(ns, n.Name, role, u.command(n, role), died); err != nil {
		return fmt.Errorf("node %s: %s: %w", n.Name, role, err)
	}
	if err := awaitListener(ctx, u.Dir.socket(n.Name, role)); err != nil {
		return fmt.Errorf("node %s: %s: %w", n.Name, role, err)
	}
	return nil
}

// endProcess ends the processes of a role on a node, and kills those that do not end. It finds them by their arguments,
// because a command that was killed may have started one and not written its pid file.
func (d Dir) endProcess(ctx context.Context, node, role string) error {
	const grace = 10 * time.Second
	for start := time.Now(); ; {
		found, err := d.roleProcesses(node, role)
		if err != nil || len(found) == 0 {
			return err
		}
		signal := syscall.SIGTERM
		if time.Since(start) > grace {
			signal = syscall.SIGKILL
		}
		for _, p := range found {
			if err := p.Signal(signal); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d does not end: %w", found[0].PID, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// roleProcesses returns the processes in a node's namespace that have the role's state directory as an argument.
func (d Dir) roleProcesses(node, role string) ([]process.ID, error) {
	var ns syscall.Stat_t
	if err := syscall.Stat(d.NS(node), &ns); err != nil {
		return nil, fmt.Errorf("namespace of %s: %w", node, err)
	}
	state := d.Node(node, "agent")
	if role == roleSandbox {
		state = d.sandboxDir(node)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []process.ID
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || teardown.NetNS(pid) != ns.Ino {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.Contains(b, []byte("\x00"+strings.Join([]string{"--state-dir", state}, "\x00")+"\x00")) {
			continue
		}
		argv := strings.Split(string(b), "\x00")
		if len(argv) < 3 || argv[1] != role || role == roleSandbox && argv[2] != "serve" {
			continue // another command about the same directory
		}
		if p, ok := process.Read(pid); ok {
			out = append(out, p)
		}
	}
	return out, nil
}
