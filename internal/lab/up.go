// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/lab/fabric"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plural"
)

// Up brings a lab up.
type Up struct {
	Dir  Dir
	Spec layout.Spec
	// From are directories whose *.yaml files are the cluster's manifests; may be empty.
	From []string
	// BinDirs are directories of CNI plugins; the first with a plugin wins.
	BinDirs []string
	// Self is this program, Agent is weft-agent, Speaker is weft-bgp, which only a fabric needs, and Env is the environment
	// of the nodes' processes.
	Self, Agent, Speaker string
	Env                  []string
	// AgentEnv is added to Env for agents, to configure custom backends.
	AgentEnv []string
	Logf     Progress
	// ConnectivityTimeout bounds the time until all nodes reach each other's pods.
	ConnectivityTimeout time.Duration
	// NoVMs skips VMs.
	NoVMs bool
	// KeepGoing keeps a lab of which nodes or VMs fail. Without it, they are errors that remove the lab.
	KeepGoing bool
}

// Run creates the lab, or leaves nothing behind.
func (u Up) Run(ctx context.Context) error {
	l, err := u.Spec.Layout()
	if err != nil {
		return err
	}
	if err := checkPrivileges(); err != nil {
		return err
	}
	if err := u.preflight(ctx); err != nil {
		return err
	}
	unlock, old, err := u.Dir.claim(ctx)
	if err != nil {
		return err
	}
	defer func() { unlock() }()
	if old != nil {
		if err := u.checkExisting(*old); err != nil {
			return err
		}
		if err := u.Dir.takeDownLocked(ctx); err != nil {
			return fmt.Errorf("previous lab %s: %w", old.Layout.Spec.Name, err)
		}
		unlock()
		if unlock, _, err = u.Dir.claim(ctx); err != nil {
			unlock = func() {}
			return err
		}
	}
	started := time.Now()
	creating, died := context.WithCancelCause(ctx)
	defer died(nil)
	var partial *incompleteError
	switch err := u.create(creating, l, died); {
	case errors.As(err, &partial):
		return model.Errorf(model.CodeTryAgain, partial.hint, "lab %s in %s is incomplete: %s", u.Spec.Name, u.Dir,
			partial.problem)
	case err != nil:
		return u.Dir.rollback(ctx, cause(ctx, creating, err))
	}
	u.Logf("lab %s is up in %s after %.1f s", u.Spec.Name, u.Dir, time.Since(started).Seconds())
	return nil
}

// cause returns why creating failed with err: up was canceled, or a process of the lab has exited. An error of that
// process's socket may precede its exit.
func cause(ctx, creating context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	select {
	case <-creating.Done():
		return context.Cause(creating)
	case <-time.After(100 * time.Millisecond):
		return err
	}
}

// checkExisting refuses to replace an existing lab, unless it has the same name and was killed.
func (u Up) checkExisting(old Marker) error {
	if have := old.Layout.Spec.Name; have != u.Spec.Name {
		return model.Errorf(model.CodeExists, "choose another --dir, or take that one down first",
			"state directory %s belongs to lab %q, not to %q", u.Dir, have, u.Spec.Name)
	}
	if old.Phase == phaseUp && u.Dir.alive(old.Layout) {
		return model.Errorf(
			model.CodeExists, fmt.Sprintf("take it down with `weft lab down --dir %s`, or choose another --dir", u.Dir),
			"lab %q is running in %s already", u.Spec.Name, u.Dir)
	}
	u.Logf("removing a killed lab")
	return nil
}

// alive reports whether every process of the lab is running.
func (d Dir) alive(l layout.Layout) bool {
	all := func(name string, roles ...string) bool {
		return !slices.ContainsFunc(roles, func(role string) bool { return !d.running(name, role) })
	}
	for _, n := range l.Nodes {
		if !all(n.Name, roles()...) || l.Spec.Fabric != "" && !all(n.Name, roleSpeaker) {
			return false
		}
	}
	return !slices.ContainsFunc(fabric.Routers(l), func(r fabric.Router) bool { return !all(r.Name, roleAgent, roleSpeaker) })
}

// create creates the lab. When a process of the lab exits, died is called with the error and cancels ctx.
func (u Up) create(ctx context.Context, l layout.Layout, died context.CancelCauseFunc) error {
	m := Marker{Phase: phaseStarting, Layout: l, Created: time.Now(), Agent: u.Agent, AgentEnv: u.AgentEnv}
	if err := u.Dir.Write(m); err != nil {
		return u.Dir.unwritable(err)
	}
	pods, vms, others, err := u.fillStore(ctx, l)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		u.Logf("note: in the store, but ignored: %s", strings.Join(others, ", "))
	}
	if err := u.linkPlugins(); err != nil {
		return err
	}
	u.Logf("creating %s on %s", plural.Count(len(l.Nodes), "node", "nodes"), plural.Count(len(l.Wires), "wire", "wires"))
	if err := u.Dir.Net().Create(ctx, l); err != nil {
		return err
	}
	if err := u.startFabric(ctx, l, died); err != nil {
		return err
	}
	u.Logf("starting agents and sandbox runtimes")
	failed, err := u.startNodes(ctx, l, died)
	if err != nil {
		return err
	}
	if len(pods) > 0 {
		u.Logf("running %s (no images: the root filesystem is the host's)", plural.Count(len(pods), "pod", "pods"))
	}
	if err := failed.add(u.runPods(ctx, l, pods, failed.nodes)); err != nil {
		return err
	}
	if err := u.runVMs(ctx, vms, died, failed); err != nil {
		return err
	}
	if err := failed.add(u.awaitConnectivity(ctx, failed.nodes)); err != nil {
		return err
	}
	m.Phase = phaseUp
	if err := u.Dir.Write(m); err != nil {
		return u.Dir.unwritable(err)
	}
	return failed.err()
}

// checkPrivileges refuses an unprivileged user, with a hint, before anything is changed.
func checkPrivileges() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return model.Errorf(
		model.CodeIO, "use sudo; or run weft in a shell that `unshare -Urnm` opens, with a --dir of your own",
		"a lab creates network namespaces, which needs root: %w", errors.New("this user is not root"))
}
