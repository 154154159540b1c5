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

// status is what there is of a pod: sandboxes and containers, the newest first.
type status struct {
	boxes      []engine.Sandbox
	containers []container.Status
}

func newStatus(boxes []engine.Sandbox, cs []container.Status) status {
	slices.SortFunc(boxes, func(a, b engine.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Config.Attempt, a.Config.Attempt), b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(cs, func(a, b container.Status) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(a.ID, b.ID))
	})
	return status{boxes, cs}
}

// box is the newest sandbox; nil when there is none.
func (s status) box() *engine.Sandbox {
	if len(s.boxes) == 0 {
		return nil
	}
	return &s.boxes[0]
}

func (s status) ready() bool { return len(s.boxes) > 0 && s.boxes[0].State == engine.Ready }

// of is the newest container of that name, in any sandbox; nil when there is none.
func (s status) of(name string) *container.Status {
	for i := range s.containers {
		if s.containers[i].Name == name {
			return &s.containers[i]
		}
	}
	return nil
}

// here is of, within the newest sandbox.
func (s status) here(name string) *container.Status {
	for i := range s.containers {
		if s.containers[i].Name == name && s.containers[i].Sandbox == s.boxes[0].ID {
			return &s.containers[i]
		}
	}
	return nil
}

// actions are what has to be done to bring a pod to what it shall be.
type actions struct {
	// createSandbox: what there is is ended first.
	createSandbox bool
	attempt       int
	// start are the containers to start, in order; a container that has ended here before is subject to back-off.
	start []pod.Container
	// remove are containers that were made and never started, and such that nobody knows anything about.
	remove []container.Status
	// waitInit: the ordinary containers wait for this init container.
	waitInit string
}

// compute decides. It is a pure function of what shall be and what is.
func compute(p *v1.Pod, st status) actions {
	var a actions
	if _, over := phase(p, st); over {
		return a
	}
	if !st.ready() {
		a.createSandbox = true
		if b := st.box(); b != nil {
			a.attempt = b.Config.Attempt + 1
		}
		return a
	}
	all := pod.Containers(p)
	for _, c := range all {
		if c.Kind == container.Ephemeral && st.of(c.Name) == nil {
			a.start = append(a.start, c)
		}
	}
	for _, c := range all {
		if c.Kind == container.Init && !a.initDone(c, st) {
			return a
		}
	}
	for _, c := range all {
		if c.Kind != container.Ordinary {
			continue
		}
		if s := st.of(c.Name); s != nil && s.State == container.Exited && !shallRestart(p, c)(s.ExitCode) {
			continue // it has ended for good, be it in a sandbox that died since
		}
		a.want(c, st, shallRestart(p, c))
	}
	return a
}

// initDone tells whether the containers after this init container may start.
func (a *actions) initDone(c pod.Container, st status) bool {
	s := st.here(c.Name)
	if sidecar(c) {
		a.want(c, st, func(int) bool { return true })
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
	a.want(c, st, func(code int) bool { return code != 0 })
	return false
}

// sidecar tells whether an init container goes on beside the ordinary ones.
func sidecar(c pod.Container) bool {
	return c.Kind == container.Init && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// want starts a container that does not run, if it has not ended for good.
func (a *actions) want(c pod.Container, st status, restart func(code int) bool) {
	s := st.here(c.Name)
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

func shallRestart(p *v1.Pod, c pod.Container) func(code int) bool {
	return func(code int) bool {
		switch {
		case c.Kind == container.Ephemeral:
			return false
		case sidecar(c):
			return true
		}
		switch p.Spec.RestartPolicy {
		case v1.RestartPolicyNever:
			return false
		case v1.RestartPolicyOnFailure:
			return code != 0
		}
		return c.Kind == container.Ordinary || code != 0
	}
}

// phase is the pod's phase; over tells that it has ended for good.
func phase(p *v1.Pod, st status) (ph v1.PodPhase, over bool) {
	never := p.Spec.RestartPolicy == v1.RestartPolicyNever
	failed, running, ended, missing := false, false, 0, 0
	ordinary := 0
	for _, c := range pod.Containers(p) {
		s := st.of(c.Name)
		switch c.Kind {
		case container.Init:
			if never && !sidecar(c) && s != nil && s.State == container.Exited && s.ExitCode != 0 {
				return v1.PodFailed, true
			}
		case container.Ordinary:
			ordinary++
			switch {
			case s == nil || s.State == container.Created:
				missing++
			case s.State != container.Exited:
				running = true
			case shallRestart(p, c)(s.ExitCode):
				running = true // it will
			default:
				ended++
				failed = failed || s.ExitCode != 0
			}
		}
	}
	switch {
	case ended == ordinary && failed:
		return v1.PodFailed, true
	case ended == ordinary:
		return v1.PodSucceeded, true
	case never && !st.ready() && len(st.boxes) > 0 && (running || ended > 0):
		return v1.PodFailed, true // its sandbox died, and nothing may start again
	case missing == 0 && (running || ended > 0):
		return v1.PodRunning, false
	}
	return v1.PodPending, false
}
