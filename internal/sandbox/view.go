// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/engine"
	"github.com/weft-net/weft/internal/sandbox/pod"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Pod is a pod in the output of `weft sandbox list -o json`. The keys are stable.
type Pod struct {
	ID        string `json:"id"` // of the sandbox; empty if it has none
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// State is Pending, Running, Succeeded, Failed or Terminating.
	State string `json:"state"`
	// Ready: the sandbox and its network are ready, and all regular containers are running.
	Ready       bool              `json:"ready"`
	Netns       string            `json:"netns"` // empty for a pod with hostNetwork
	IPs         []string          `json:"ips"`
	HostNetwork bool              `json:"hostNetwork"`
	Attempt     int               `json:"attempt"`
	Annotations map[string]string `json:"annotations"`
	Labels      map[string]string `json:"labels"`
	Created     time.Time         `json:"created"`
	// Reason and Message explain why the pod is not in its desired state; empty if it is.
	Reason     string      `json:"reason"`
	Message    string      `json:"message"`
	Containers []Container `json:"containers"`
}

// Container is a container of a pod. Its state is waiting before its first start.
type Container struct {
	Name     string     `json:"name"`
	Kind     string     `json:"kind"`
	State    string     `json:"state"`
	Ready    bool       `json:"ready"`
	Restarts int        `json:"restarts"`
	ExitCode int        `json:"exitCode"`
	Reason   string     `json:"reason,omitempty"`
	Message  string     `json:"message,omitempty"`
	Image    string     `json:"image"`
	ID       string     `json:"id,omitempty"`
	Log      string     `json:"log,omitempty"`
	Process  process.ID `json:"process,omitzero"`
	Started  time.Time  `json:"started,omitzero"`
	Finished time.Time  `json:"finished,omitzero"`
}

// view returns the pod for output.
func (w *worker) view() Pod {
	d, st := w.desired(), w.status()
	p := d.Pod
	ph, terminal := phase(p, st)
	v := Pod{
		Namespace: p.Namespace, Name: p.Name, UID: w.uid, State: string(ph), HostNetwork: p.Spec.HostNetwork,
		Annotations: p.Annotations, Labels: p.Labels, Created: d.Added, IPs: []string{}, Containers: []Container{},
	}
	v.Reason, v.Message = w.lastReason()
	if d.Deleted != nil {
		v.State = "Terminating"
	}
	if b := st.sandbox(); b != nil {
		v.ID, v.Netns, v.Attempt = b.ID, b.Netns, b.Config.Attempt
		v.IPs = append(v.IPs, addrs(b.Net.IPs)...)
	}
	v.Ready = st.ready() && !terminal && d.Deleted == nil
	for _, c := range pod.Containers(p) {
		cv := containerView(c, st)
		v.Containers = append(v.Containers, cv)
		if c.Kind == container.Regular && !cv.Ready {
			v.Ready = false
		}
	}
	if v.Annotations == nil {
		v.Annotations = map[string]string{}
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	return v
}

func containerView(c pod.Container, st status) Container {
	v := Container{Name: c.Name, Kind: string(c.Kind), State: "waiting", Image: c.Image}
	s := st.newest(c.Name)
	if s == nil {
		return v
	}
	v.State, v.Restarts, v.ID, v.Log, v.Process = string(s.State), s.Attempt, s.ID, s.Log, s.Process
	v.ExitCode, v.Reason, v.Message, v.Started, v.Finished = s.ExitCode, s.Reason, s.Message, s.Started, s.Finished
	v.Ready = s.State == container.Running && st.ready() && s.Sandbox == st.sandbox().ID
	return v
}

// Detail is a pod in the output of `weft sandbox inspect`.
type Detail struct {
	Pod
	// Sandboxes are all sandboxes of the pod, the newest first.
	Sandboxes []engine.Sandbox   `json:"sandboxes"`
	All       []container.Status `json:"allContainers"`
	Manifest  *v1.Pod            `json:"manifest"`
}

func (w *worker) detail() Detail {
	st := w.status()
	return Detail{Pod: w.view(), Sandboxes: st.sandboxes, All: st.containers, Manifest: w.pod()}
}

// List returns all pods, sorted by namespace and name.
func (s *Server) List() []Pod {
	out := []Pod{}
	for _, w := range s.allWorkers() {
		out = append(out, w.view())
	}
	slices.SortFunc(out, func(a, b Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return out
}
