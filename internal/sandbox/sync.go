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

// status looks at the pod.
func (w *worker) status() status { return newStatus(w.s.engine.StatusOf(w.uid)) }

// syncPod makes the pod run: a sandbox, then its containers. An error has been said already; it is tried again later.
func (w *worker) syncPod(ctx context.Context, d desired) (after time.Duration, err error) {
	if ok, err := w.s.pleg.Healthy(); !ok {
		w.say("PLEGNotHealthy", err.Error())
		return 0, err
	}
	st := w.status()
	if err := w.sweep(ctx, st); err != nil {
		w.say("FailedCleanUp", err.Error())
		return 0, err
	}
	acts := compute(d.Pod, st)
	if acts.createSandbox {
		if st, err = w.newSandbox(ctx, d.Pod, st, acts.attempt); err != nil {
			return 0, err
		}
		acts = compute(d.Pod, st)
	}
	if _, over := phase(d.Pod, st); over {
		return 0, w.finish(ctx, st)
	}
	for _, c := range acts.remove {
		if err := w.s.engine.RemoveContainer(ctx, c.Sandbox, c.ID); err != nil {
			w.say("FailedCleanUp", err.Error())
			return 0, err
		}
	}
	return w.startContainers(ctx, d.Pod, st, acts)
}

// finish gives back the network of a pod that has ended for good. Its records stay until it is deleted.
func (w *worker) finish(ctx context.Context, st status) error {
	for _, b := range st.boxes {
		if b.State != engine.Ready {
			continue
		}
		if err := w.s.engine.StopPodSandbox(ctx, b.ID); err != nil {
			w.say("FailedKillPod", err.Error())
			return err
		}
	}
	w.say("", "")
	return nil
}

// sweep removes what is dead and not needed any more: of each container all dead ones but the newest, and all sandboxes
// but the newest in which no such container is.
func (w *worker) sweep(ctx context.Context, st status) error {
	var errs []error
	needed := map[string]bool{}
	for _, c := range st.containers {
		if st.of(c.Name).ID == c.ID {
			needed[c.Sandbox] = true
		}
	}
	for i, b := range st.boxes {
		if i > 0 && !needed[b.ID] {
			errs = append(errs, w.s.engine.RemovePodSandbox(ctx, b.ID))
		}
	}
	for _, c := range st.containers {
		newest := st.of(c.Name)
		if c.ID != newest.ID && c.State == container.Exited && (len(st.boxes) == 0 || c.Sandbox == st.boxes[0].ID) {
			errs = append(errs, w.s.engine.RemoveContainer(ctx, c.Sandbox, c.ID))
		}
	}
	return errors.Join(errs...)
}

// newSandbox ends what is left of the old sandbox and makes a new one.
func (w *worker) newSandbox(ctx context.Context, p *v1.Pod, st status, attempt int) (status, error) {
	if why := w.s.networkProblem(); why != "" && !p.Spec.HostNetwork {
		w.say("NetworkNotReady", why)
		return st, errors.New(why)
	}
	if b := st.box(); b != nil {
		if err := w.s.engine.StopPodSandbox(ctx, b.ID); err != nil {
			w.say("FailedKillPod", err.Error())
			return st, err
		}
	}
	cfg, err := pod.Config(p, w.s.cfg.node(), attempt)
	if err != nil {
		w.say("InvalidPod", err.Error())
		return st, err
	}
	id, err := w.s.engine.RunPodSandbox(ctx, cfg)
	if err != nil {
		w.say("FailedCreatePodSandBox", err.Error())
		return st, err
	}
	w.log.Info("sandbox runs", "sandbox", id[:12], "attempt", attempt)
	return w.status(), nil
}

// startContainers starts what may start now. It returns when to look again for those that must wait.
func (w *worker) startContainers(ctx context.Context, p *v1.Pod, st status, acts actions) (time.Duration, error) {
	box := st.box()
	files, err := w.files(p, box)
	if err != nil {
		w.say("FailedCreateFiles", err.Error())
		return 0, err
	}
	var after time.Duration
	var errs []error
	waiting := ""
	for _, c := range acts.start {
		attempt := 0
		now := w.s.cfg.Now()
		if old := st.of(c.Name); old != nil {
			attempt = old.Attempt + 1
			if old.State == container.Exited && old.Sandbox == box.ID {
				if left := w.restarts.left(c.Name, old.Finished, now); left > 0 {
					waiting = fmt.Sprintf("back-off %v restarting container %s", w.restarts.delay(c.Name), c.Name)
					after = earlier(after, left)
					continue
				}
				w.restarts.next(c.Name, old.Finished, now)
			} else if old.State == container.Created {
				attempt = old.Attempt
			}
		}
		spec := pod.Spec(p, c, w.s.cfg.node(), attempt, addrs(box.Net.IPs), files)
		if err := w.s.engine.StartContainer(ctx, box.ID, spec); err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case len(errs) > 0:
		w.say("FailedStart", errors.Join(errs...).Error())
		return earlier(after, w.s.cfg.Times.Relist), nil // the dead container is seen, and its back-off counts
	case waiting != "":
		w.say("CrashLoopBackOff", waiting)
	case acts.waitInit != "":
		w.say("", "")
		return earlier(after, whileInit), nil
	default:
		w.say("", "")
	}
	return after, nil
}

// whileInit is how often a pod is looked at whose init containers run: the next one need not wait for the next relist.
const whileInit = 50 * time.Millisecond

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

// files writes what the containers see instead of the node's own files.
func (w *worker) files(p *v1.Pod, box *engine.Sandbox) ([]container.File, error) {
	dir := w.s.engine.SandboxDir(box.ID)
	texts := map[string][]byte{
		"/etc/resolv.conf": pod.Resolver(p, w.s.cfg.node(), box.Net.DNS).ResolvConf(),
	}
	if !p.Spec.HostNetwork {
		texts["/etc/hostname"] = []byte(pod.Hostname(p) + "\n")
		texts["/etc/hosts"] = pod.Hosts(p, addrs(box.Net.IPs))
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

// syncTerminatingPod ends the containers, all at once and with their grace period, then the sandboxes.
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
	for _, b := range st.boxes {
		err := w.s.engine.StopPodSandbox(ctx, b.ID)
		if err != nil && d.Deleted.Force {
			w.log.Warn("the network is given up", "error", err)
			err = w.s.engine.AbandonPodSandbox(ctx, b.ID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// syncTerminatedPod takes away everything that is left of the pod, what was desired last.
func (w *worker) syncTerminatedPod(ctx context.Context, d desired) error {
	for _, b := range w.status().boxes {
		if err := w.s.engine.RemovePodSandbox(ctx, b.ID); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(pod.LogDir(d.Pod, w.s.cfg.LogDir)); err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	if err := w.s.shelf.remove(w.uid); err != nil {
		return err
	}
	w.log.Info("pod is gone")
	return nil
}
