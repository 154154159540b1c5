// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/model"
)

// Up brings a lab up.
type Up struct {
	Dir  Dir
	Spec Spec
	// From are directories whose *.yaml files are the cluster's manifests; may be empty.
	From []string
	// BinDirs are directories of CNI plugins; of two of one name the first counts.
	BinDirs []string
	// Self is this program, Agent weft-agent, and Env the environment that the processes of the nodes get.
	Self, Agent string
	Env         []string
	// AgentEnv is added to it for the agents: what back ends of one's own are told.
	AgentEnv []string
	Say      Progress
	// NoMachines leaves virtual machines out.
	NoMachines bool
}

// Run makes the lab, or leaves nothing behind.
func (u Up) Run(ctx context.Context) error {
	layout, err := u.Spec.Lay()
	if err != nil {
		return err
	}
	if err := mayMakeNamespaces(); err != nil {
		return err
	}
	if err := u.able(ctx); err != nil {
		return err
	}
	unlock, old, err := u.Dir.claim(ctx)
	if err != nil {
		return err
	}
	defer func() { unlock() }()
	if old != nil {
		if err := u.replace(*old); err != nil {
			return err
		}
		if err := u.Dir.takeDown(ctx); err != nil {
			return fmt.Errorf("lab %s that was here before: %w", old.Layout.Spec.Name, err)
		}
		unlock()
		if unlock, _, err = u.Dir.claim(ctx); err != nil {
			unlock = func() {}
			return err
		}
	}
	begun := time.Now()
	making, died := context.WithCancelCause(ctx)
	defer died(nil)
	var stands *standingError
	switch err := u.make(making, layout, died); {
	case errors.As(err, &stands):
		return model.Faultf(model.CodeTryAgain, stands.hint, "lab %s stands in %s, but: %s", u.Spec.Name, u.Dir,
			stands.problem)
	case err != nil:
		return u.Dir.undone(ctx, reason(ctx, making, err))
	}
	u.Say("lab %s is up in %s after %.1f s", u.Spec.Name, u.Dir, time.Since(begun).Seconds())
	return nil
}

// standingError is what is wrong with a lab that is left standing: its reason can be looked for only while it runs.
type standingError struct{ problem, hint string }

func (e *standingError) Error() string { return e.problem }

func standing(hint, format string, args ...any) error {
	return &standingError{problem: fmt.Sprintf(format, args...), hint: hint}
}

// reason finds out why making ended with err: up was told to stop, or a process of the lab is no more. The latter may
// be felt through its socket a moment before it is known.
func reason(ctx, making context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	select {
	case <-making.Done():
		return context.Cause(making)
	case <-time.After(100 * time.Millisecond):
		return err
	}
}

// replace decides about a lab that is in the directory already: one that was killed is cleared away, others stay.
func (u Up) replace(old Marker) error {
	if have := old.Layout.Spec.Name; have != u.Spec.Name {
		return model.Faultf(model.CodeExists, "choose another --dir, or take that one down first",
			"state directory %s belongs to lab %q, not to %q", u.Dir, have, u.Spec.Name)
	}
	if old.Phase == phaseUp && u.Dir.alive(old.Layout) {
		return model.Faultf(
			model.CodeExists, fmt.Sprintf("take it down with `weft lab down --dir %s`, or choose another --dir", u.Dir),
			"lab %q is up in %s already", u.Spec.Name, u.Dir)
	}
	u.Say("clearing away what is left of a killed lab")
	return nil
}

// alive tells whether every process of the lab runs.
func (d Dir) alive(l Layout) bool {
	for _, n := range l.Nodes {
		for _, role := range roles() {
			if !d.runs(n.Name, role) {
				return false
			}
		}
	}
	return true
}

// make makes the lab. died is called with the reason when a process of it ends, and ends ctx.
func (u Up) make(ctx context.Context, l Layout, died context.CancelCauseFunc) error {
	if err := u.Dir.write(Marker{Phase: phaseStarting, Layout: l}); err != nil {
		return u.Dir.unwritable(err)
	}
	pods, machines, others, err := u.fill(ctx, l)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		u.Say("note: kept in the store, but nothing acts on them: %s", strings.Join(others, ", "))
	}
	if err := u.linkPlugins(); err != nil {
		return err
	}
	u.Say("making %d nodes on %d wires", len(l.Nodes), len(l.Wires))
	if err := u.Dir.cable(ctx, l); err != nil {
		return err
	}
	u.Say("starting agents and sandbox runtimes")
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, n := range l.Nodes {
		group.Go(func() error { return u.startNode(gctx, n, died) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(pods) > 0 {
		u.Say("running %d pods (no images: the machine's own files are their root)", len(pods))
	}
	var stands *standingError
	bad := u.runPods(ctx, l, pods)
	if bad != nil && !errors.As(bad, &stands) {
		return bad
	}
	if err := u.runMachines(ctx, machines, died); err != nil {
		return err
	}
	err = u.settle(ctx)
	if err != nil && !errors.As(err, &stands) {
		return err
	}
	if err := u.Dir.write(Marker{Phase: phaseUp, Layout: l}); err != nil {
		return u.Dir.unwritable(err)
	}
	if bad != nil {
		return bad
	}
	return err
}

// mayMakeNamespaces tells an ordinary user the way out before anything is touched.
func mayMakeNamespaces() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return model.Faultf(
		model.CodeIO, "use sudo; or open a shell with `unshare -Urnm` and use weft in there, with a --dir of your own",
		"a lab makes network namespaces, which needs root: %w", errors.New("this is an ordinary user"))
}
