// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/engine"
	"github.com/weft-net/weft/internal/sandbox/pod"
)

// status is the observed state of a pod: sandboxes and containers, the newest first.
type status struct {
	sandboxes  []engine.Sandbox
	containers []container.Status
}

func newStatus(sandboxes []engine.Sandbox, cs []container.Status) status {
	slices.SortFunc(sandboxes, func(a, b engine.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Config.Attempt, a.Config.Attempt), b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(cs, func(a, b container.Status) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(a.ID, b.ID))
	})
	return status{sandboxes, cs}
}

// sandbox returns the newest sandbox, or nil.
func (s status) sandbox() *engine.Sandbox {
	if len(s.sandboxes) == 0 {
		return nil
	}
	return &s.sandboxes[0]
}

func (s status) ready() bool { return len(s.sandboxes) > 0 && s.sandboxes[0].State == engine.Ready }

// newest returns the newest container with a name, in any sandbox, or nil.
func (s status) newest(name string) *container.Status {
	for i := range s.containers {
		if s.containers[i].Name == name {
			return &s.containers[i]
		}
	}
	return nil
}

// current returns the newest container with a name in the newest sandbox, or nil.
func (s status) current(name string) *container.Status {
	for i := range s.containers {
		if s.containers[i].Name == name && s.containers[i].Sandbox == s.sandboxes[0].ID {
			return &s.containers[i]
		}
	}
	return nil
}

// actions are the changes that bring a pod from its observed to its desired state (the kubelet's podActions).
type actions struct {
	// createSandbox: the pod needs a new sandbox; the old one is stopped first.
	createSandbox bool
	attempt       int
	// start are the containers to start, in order. Restarts of a container are subject to back-off.
	start []pod.Container
	// remove are containers that were created but never started, and containers in an unknown state.
	remove []container.Status
	// waitInit is the init container that the regular containers wait for.
	waitInit string
}

// computeActions is a pure function of the desired and the observed state.
func computeActions(p *v1.Pod, st status) actions {
	var a actions
	if _, terminal := phase(p, st); terminal {
		return a
	}
	if !st.ready() {
		a.createSandbox = true
		if b := st.sandbox(); b != nil {
			a.attempt = b.Config.Attempt + 1
		}
		return a
	}
	all := pod.Containers(p)
	for _, c := range all {
		if c.Kind == container.Ephemeral && st.newest(c.Name) == nil {
			a.start = append(a.start, c)
		}
	}
	for _, c := range all {
		if c.Kind == container.Init && !a.initDone(c, st) {
			return a
		}
	}
	for _, c := range all {
		if c.Kind != container.Regular {
			continue
		}
		if s := st.newest(c.Name); s != nil && s.State == container.Exited && !shouldRestart(p, c)(s.ExitCode) {
			continue // it exited permanently, maybe in an earlier sandbox
		}
		a.startIfStopped(c, st, shouldRestart(p, c))
	}
	return a
}

// initDone reports whether the containers after this init container can start.
func (a *actions) initDone(c pod.Container, st status) bool {
	s := st.current(c.Name)
	if isSidecar(c) {
		a.startIfStopped(c, st, func(int) bool { return true })
		if s == nil || s.State != container.Running {
			a.waitInit = c.Name
			return false
		}
		return true
	}
	if s != nil && s.State == container.Exited && s.ExitCode == 0 {
		return true
	}
	a.waitInit = c.Name
	a.startIfStopped(c, st, func(code int) bool { return code != 0 })
	return false
}

// isSidecar reports whether a container is a restartable init container, which runs along with the regular containers.
func isSidecar(c pod.Container) bool {
	return c.Kind == container.Init && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// startIfStopped starts a container that does not run, unless it exited and restart returns false.
func (a *actions) startIfStopped(c pod.Container, st status, restart func(code int) bool) {
	s := st.current(c.Name)
	switch {
	case s == nil:
		a.start = append(a.start, c)
	case s.Starting:
	case s.State == container.Created || s.State == container.Unknown:
		a.remove = append(a.remove, *s)
		a.start = append(a.start, c)
	case s.State == container.Exited && restart(s.ExitCode):
		a.start = append(a.start, c)
	}
}

func shouldRestart(p *v1.Pod, c pod.Container) func(code int) bool {
	return func(code int) bool {
		switch {
		case c.Kind == container.Ephemeral:
			return false
		case isSidecar(c):
			return true
		}
		switch p.Spec.RestartPolicy {
		case v1.RestartPolicyNever:
			return false
		case v1.RestartPolicyOnFailure:
			return code != 0
		}
		return c.Kind == container.Regular || code != 0
	}
}

// phase returns the pod's phase; terminal is true if it will not change any more.
func phase(p *v1.Pod, st status) (ph v1.PodPhase, terminal bool) {
	never := p.Spec.RestartPolicy == v1.RestartPolicyNever
	failed, running, exited, missing := false, false, 0, 0
	regular := 0
	for _, c := range pod.Containers(p) {
		s := st.newest(c.Name)
		switch c.Kind {
		case container.Init:
			if never && !isSidecar(c) && s != nil && s.State == container.Exited && s.ExitCode != 0 {
				return v1.PodFailed, true
			}
		case container.Regular:
			regular++
			switch {
			case s == nil || s.State == container.Created:
				missing++
			case s.State != container.Exited:
				running = true
			case shouldRestart(p, c)(s.ExitCode):
				running = true // after its restart
			default:
				exited++
				failed = failed || s.ExitCode != 0
			}
		}
	}
	switch {
	case exited == regular && failed:
		return v1.PodFailed, true
	case exited == regular:
		return v1.PodSucceeded, true
	case never && !st.ready() && len(st.sandboxes) > 0 && (running || exited > 0):
		return v1.PodFailed, true // its sandbox died, and its containers must not be restarted
	case missing == 0 && (running || exited > 0):
		return v1.PodRunning, false
	}
	return v1.PodPending, false
}
