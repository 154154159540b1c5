// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/engine"
	"github.com/weft-net/weft/internal/sandbox/pod"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// status returns the observed state of the pod.
func (w *worker) status() status { return newStatus(w.s.engine.StatusOf(w.uid)) }

// syncPod runs the pod: a sandbox, then its containers. It has reported an error that it returns; the worker retries
// later.
func (w *worker) syncPod(ctx context.Context, d desired) (after time.Duration, err error) {
	if ok, err := w.s.pleg.Healthy(); !ok {
		w.setReason("PLEGNotHealthy", err.Error())
		return 0, err
	}
	st := w.status()
	if err := w.collectGarbage(ctx, st); err != nil {
		w.setReason("FailedCleanUp", err.Error())
		return 0, err
	}
	acts := computeActions(d.Pod, st)
	if acts.createSandbox {
		if st, err = w.newSandbox(ctx, d.Pod, st, acts.attempt); err != nil {
			return 0, err
		}
		acts = computeActions(d.Pod, st)
	}
	if _, terminal := phase(d.Pod, st); terminal {
		return 0, w.finish(ctx, st)
	}
	for _, c := range acts.remove {
		if err := w.s.engine.RemoveContainer(ctx, c.Sandbox, c.ID); err != nil {
			w.setReason("FailedCleanUp", err.Error())
			return 0, err
		}
	}
	return w.startContainers(ctx, d.Pod, st, acts)
}

// finish stops the sandboxes of a pod that has succeeded or failed. Their records stay until the pod is deleted.
func (w *worker) finish(ctx context.Context, st status) error {
	for _, b := range st.sandboxes {
		if b.State != engine.Ready {
			continue
		}
		if err := w.s.engine.StopPodSandbox(ctx, b.ID); err != nil {
			w.setReason("FailedKillPod", err.Error())
			return err
		}
	}
	w.setReason("", "")
	return nil
}

// collectGarbage removes dead containers and sandboxes. It keeps the newest of each container and the sandboxes that
// contain them.
func (w *worker) collectGarbage(ctx context.Context, st status) error {
	var errs []error
	needed := map[string]bool{}
	for _, c := range st.containers {
		if st.newest(c.Name).ID == c.ID {
			needed[c.Sandbox] = true
		}
	}
	for i, b := range st.sandboxes {
		if i > 0 && !needed[b.ID] {
			errs = append(errs, w.s.engine.RemovePodSandbox(ctx, b.ID))
		}
	}
	for _, c := range st.containers {
		newest := st.newest(c.Name)
		if c.ID != newest.ID && c.State == container.Exited && (len(st.sandboxes) == 0 || c.Sandbox == st.sandboxes[0].ID) {
			errs = append(errs, w.s.engine.RemoveContainer(ctx, c.Sandbox, c.ID))
		}
	}
	return errors.Join(errs...)
}

// newSandbox stops the old sandbox and runs a new one.
func (w *worker) newSandbox(ctx context.Context, p *v1.Pod, st status, attempt int) (status, error) {
	if problem := w.s.networkProblem(); problem != "" && !p.Spec.HostNetwork {
		w.setReason("NetworkNotReady", problem)
		return st, errors.New(problem)
	}
	if b := st.sandbox(); b != nil {
		if err := w.s.engine.StopPodSandbox(ctx, b.ID); err != nil {
			w.setReason("FailedKillPod", err.Error())
			return st, err
		}
	}
	cfg, err := pod.Config(p, w.s.cfg.node(), attempt)
	if err != nil {
		w.setReason("InvalidPod", err.Error())
		return st, err
	}
	id, err := w.s.engine.RunPodSandbox(ctx, cfg)
	if err != nil {
		w.setReason("FailedCreatePodSandBox", err.Error())
		return st, err
	}
	w.log.Info("sandbox is running", "sandbox", id[:12], "attempt", attempt)
	return w.status(), nil
}

// startContainers starts the containers that can start now. It returns the time until the next of the others can start.
func (w *worker) startContainers(ctx context.Context, p *v1.Pod, st status, acts actions) (time.Duration, error) {
	sandbox := st.sandbox()
	files, err := w.files(p, sandbox)
	if err != nil {
		w.setReason("FailedCreateFiles", err.Error())
		return 0, err
	}
	var after time.Duration
	var errs []error
	waiting := ""
	for _, c := range acts.start {
		attempt := 0
		now := w.s.cfg.Now()
		if old := st.newest(c.Name); old != nil {
			attempt = old.Attempt + 1
			if old.State == container.Exited && old.Sandbox == sandbox.ID {
				if left := w.restarts.remaining(c.Name, old.Finished, now); left > 0 {
					waiting = fmt.Sprintf("back-off %v restarting container %s", w.restarts.delay(c.Name), c.Name)
					after = earlier(after, left)
					continue
				}
				w.restarts.next(c.Name, old.Finished, now)
			} else if old.State == container.Created {
				attempt = old.Attempt
			}
		}
		spec := pod.Spec(p, c, w.s.cfg.node(), attempt, addrs(sandbox.Net.IPs), files)
		if err := w.s.engine.StartContainer(ctx, sandbox.ID, spec); err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case len(errs) > 0:
		w.setReason("FailedStart", errors.Join(errs...).Error())
		return earlier(after, w.s.cfg.Times.Relist), nil // the next sync finds the dead container and applies its back-off
	case waiting != "":
		w.setReason("CrashLoopBackOff", waiting)
	case acts.waitInit != "":
		w.setReason("", "")
		return earlier(after, initInterval), nil
	default:
		w.setReason("", "")
	}
	return after, nil
}

// initInterval is the time between two syncs of a pod whose init containers run, so that the next one does not wait for
// the next relist.
const initInterval = 50 * time.Millisecond

func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

func addrs(ips []netip.Addr) []string {
	var out []string
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}

// files writes the files that are mounted over the node's in the pod's containers.
func (w *worker) files(p *v1.Pod, sandbox *engine.Sandbox) ([]container.File, error) {
	dir := w.s.engine.SandboxDir(sandbox.ID)
	texts := map[string][]byte{
		"/etc/resolv.conf": pod.Resolver(p, w.s.cfg.node(), sandbox.Net.DNS).ResolvConf(),
	}
	if !p.Spec.HostNetwork {
		texts["/etc/hostname"] = []byte(pod.Hostname(p) + "\n")
		texts["/etc/hosts"] = pod.Hosts(p, addrs(sandbox.Net.IPs))
	}
	var out []container.File
	for _, target := range []string{"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"} {
		text, ok := texts[target]
		if !ok {
			continue
		}
		source := filepath.Join(dir, filepath.Base(target))
		if _, err := os.Stat(source); err != nil {
			if err := process.WriteFile(source, text, 0o644); err != nil {
				return nil, err
			}
		}
		out = append(out, container.File{Source: source, Target: target})
	}
	return out, nil
}

// syncTerminatingPod stops the containers in parallel, with the grace period, then the sandboxes.
func (w *worker) syncTerminatingPod(ctx context.Context, d desired) error {
	st := w.status()
	var all sync.WaitGroup
	errs := make([]error, len(st.containers))
	for i, c := range st.containers {
		if c.State == container.Exited || c.State == container.Created && !c.Starting {
			continue
		}
		all.Go(func() { errs[i] = w.s.engine.StopContainer(ctx, c.Sandbox, c.ID, d.Deleted.Grace) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, b := range st.sandboxes {
		err := w.s.engine.StopPodSandbox(ctx, b.ID)
		if err != nil && d.Deleted.Force {
			w.log.Warn("network cannot be torn down; abandoning it because of --force", "err", err)
			err = w.s.engine.AbandonPodSandbox(ctx, b.ID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// syncTerminatedPod removes everything that belongs to the pod, its desired state last.
func (w *worker) syncTerminatedPod(ctx context.Context, d desired) error {
	for _, b := range w.status().sandboxes {
		if err := w.s.engine.RemovePodSandbox(ctx, b.ID); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(pod.LogDir(d.Pod, w.s.cfg.LogDir)); err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	if err := w.s.store.remove(w.uid); err != nil {
		return err
	}
	w.log.Info("pod was removed")
	return nil
}
