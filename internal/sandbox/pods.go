// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox/engine"
	"github.com/weft-net/weft/internal/sandbox/pod"
)

// resume starts a worker for each stored pod, and for each sandbox without a stored pod a worker that terminates it.
func (s *Server) resume() error {
	ds, err := s.store.list()
	s.mu.Lock()
	for _, d := range ds {
		s.startWorkerLocked(d)
	}
	s.mu.Unlock()
	for _, b := range s.engine.Sandboxes() {
		s.terminateOrphan(b)
	}
	return err
}

// terminateOrphan terminates the pod of a sandbox if that pod is not desired.
func (s *Server) terminateOrphan(b engine.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.workers[b.Config.UID]; ok {
		return
	}
	s.log.Warn("terminating an orphaned sandbox", "pod", b.Config.Namespace+"/"+b.Config.Name, "sandbox", b.ID)
	s.startWorkerLocked(desired{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Config.Namespace, Name: b.Config.Name, UID: types.UID(b.Config.UID), Annotations: b.Config.Annotations,
		}},
		Added: b.Created, Deleted: &deletion{At: s.cfg.Now()},
	})
}

// AppliedPod is the result for one pod of a manifest.
type AppliedPod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Created   bool     `json:"created"` // false if the pod existed already
	Ignored   []string `json:"ignored,omitempty"`
}

// apply adds a pod to the desired ones. It is idempotent; the only change that it accepts to an existing pod is further
// ephemeral containers.
func (s *Server) apply(p *v1.Pod, source string) (AppliedPod, error) {
	out := AppliedPod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Ignored: pod.Ignored(p)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return out, model.Errorf(model.CodeTryAgain, "try again", "the runtime is stopping, because no pod was left")
	}
	for _, w := range s.workers {
		d := w.desired()
		if pod.Name(d.Pod) != pod.Name(p) && d.Pod.UID != p.UID {
			if err := checkHostPorts(p, d.Pod); err != nil {
				return out, err
			}
			continue
		}
		return out, s.updateExisting(w, d, p)
	}
	d := desired{Pod: p, Source: source, Added: s.cfg.Now()}
	if err := s.store.write(d); err != nil {
		return out, err
	}
	out.Created = true
	s.startWorkerLocked(d)
	return out, nil
}

func (s *Server) updateExisting(w *worker, d desired, p *v1.Pod) error {
	name := pod.Name(p)
	switch {
	case d.Deleted != nil:
		return model.Errorf(model.CodeTryAgain, "wait until it is gone", "pod %s is terminating", name)
	case d.Pod.UID != p.UID || pod.Name(d.Pod) != name:
		return model.Errorf(model.CodeInvalidConf, "stop it first, or choose another name",
			"pod %s: name or UID is used by pod %s with UID %s", name, pod.Name(d.Pod), d.Pod.UID)
	}
	was, is := d.Pod.Spec.DeepCopy(), p.Spec.DeepCopy()
	old := was.EphemeralContainers
	was.EphemeralContainers, is.EphemeralContainers = nil, nil
	kept := len(old) <= len(p.Spec.EphemeralContainers) &&
		reflect.DeepEqual(old, p.Spec.EphemeralContainers[:len(old):len(old)])
	if !reflect.DeepEqual(was, is) || (!kept && len(old) > 0) {
		return model.Errorf(model.CodeInvalidConf, "stop it first, or choose another name",
			"pod %s exists with another spec", name)
	}
	if len(p.Spec.EphemeralContainers) == len(old) {
		return nil
	}
	d.Pod = p
	if err := s.store.write(d); err != nil {
		return err
	}
	w.update(d)
	return nil
}

// checkHostPorts refuses a pod whose host port another pod uses.
func checkHostPorts(a, b *v1.Pod) error {
	taken := pod.HostPorts(b)
	for _, port := range pod.HostPorts(a) {
		if slices.Contains(taken, port) {
			return model.Errorf(model.CodeInvalidConf, "choose another hostPort, or stop that pod",
				"pod %s: hostPort %s is used by pod %s", pod.Name(a), port, pod.Name(b))
		}
	}
	return nil
}

// terminate deletes a pod. A nil grace means the pod's own grace period.
func (s *Server) terminate(w *worker, grace *time.Duration, force bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := w.desired()
	g := 30 * time.Second
	if t := d.Pod.Spec.TerminationGracePeriodSeconds; t != nil {
		g = time.Duration(*t) * time.Second
	}
	if grace != nil {
		g = *grace
	}
	if d.Deleted != nil && d.Deleted.Grace <= g && d.Deleted.Force == force {
		return nil
	}
	d.Deleted = &deletion{At: s.cfg.Now(), Grace: g, Force: force}
	if err := s.store.write(d); err != nil {
		return err
	}
	w.update(d)
	return nil
}

// find returns the worker of a pod, by namespace and name, or by UID if namespace is empty.
func (s *Server) find(namespace, name string) (*worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		p := w.pod()
		if p.Namespace == namespace && p.Name == name || namespace == "" && string(p.UID) == name {
			return w, nil
		}
	}
	return nil, model.Errorf(model.CodeUnknownContainer, "see `weft sandbox list`", "pod %s not found",
		fmt.Sprintf("%s/%s", namespace, name))
}

func (s *Server) allWorkers() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*worker, 0, len(s.workers))
	for _, w := range s.workers {
		out = append(out, w)
	}
	return out
}
