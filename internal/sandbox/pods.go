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

// resume gives every pod that was desired before the server died its worker again, and every pod that runs without
// being desired one that ends it.
func (s *Server) resume() error {
	ds, err := s.shelf.list()
	s.mu.Lock()
	for _, d := range ds {
		s.start(d)
	}
	s.mu.Unlock()
	for _, b := range s.engine.Sandboxes() {
		s.adopt(b)
	}
	return err
}

// adopt ends the pod of a sandbox that nobody desires.
func (s *Server) adopt(b engine.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.workers[b.Config.UID]; ok {
		return
	}
	s.log.Warn("a sandbox of no pod is ended", "pod", b.Config.Namespace+"/"+b.Config.Name, "sandbox", b.ID)
	s.start(desired{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Config.Namespace, Name: b.Config.Name, UID: types.UID(b.Config.UID), Annotations: b.Config.Annotations,
		}},
		Added: b.Created, Deleted: &deletion{At: s.cfg.Now()},
	})
}

// Applied is what became of one pod of a manifest.
type Applied struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Created   bool     `json:"created"` // false: it was there already
	Ignored   []string `json:"ignored,omitempty"`
}

// apply makes a pod desired. The same pod again is no error; other ephemeral containers are added to a running pod.
func (s *Server) apply(p *v1.Pod, source string) (Applied, error) {
	out := Applied{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Ignored: pod.Ignored(p)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return out, model.Faultf(model.CodeTryAgain, "try again", "the runtime is ending, for no pod was left")
	}
	for _, w := range s.workers {
		d := w.desired()
		if pod.Name(d.Pod) != pod.Name(p) && d.Pod.UID != p.UID {
			if err := portsClash(p, d.Pod); err != nil {
				return out, err
			}
			continue
		}
		return out, s.applyAgain(w, d, p)
	}
	d := desired{Pod: p, Source: source, Added: s.cfg.Now()}
	if err := s.shelf.put(d); err != nil {
		return out, err
	}
	out.Created = true
	s.start(d)
	return out, nil
}

func (s *Server) applyAgain(w *worker, d desired, p *v1.Pod) error {
	name := pod.Name(p)
	switch {
	case d.Deleted != nil:
		return model.Faultf(model.CodeTryAgain, "wait until it is gone", "pod %s is being stopped", name)
	case d.Pod.UID != p.UID || pod.Name(d.Pod) != name:
		return model.Faultf(model.CodeInvalidConf, "stop it first, or choose another name",
			"pod %s: name or uid is taken by pod %s with uid %s", name, pod.Name(d.Pod), d.Pod.UID)
	}
	was, is := d.Pod.Spec.DeepCopy(), p.Spec.DeepCopy()
	old := was.EphemeralContainers
	was.EphemeralContainers, is.EphemeralContainers = nil, nil
	kept := len(old) <= len(p.Spec.EphemeralContainers) &&
		reflect.DeepEqual(old, p.Spec.EphemeralContainers[:len(old):len(old)])
	if !reflect.DeepEqual(was, is) || (!kept && len(old) > 0) {
		return model.Faultf(model.CodeInvalidConf, "stop it first, or choose another name",
			"pod %s runs already, with another specification", name)
	}
	if len(p.Spec.EphemeralContainers) == len(old) {
		return nil
	}
	d.Pod = p
	if err := s.shelf.put(d); err != nil {
		return err
	}
	w.update(d)
	return nil
}

// portsClash refuses a second pod that wants the same port of the node.
func portsClash(a, b *v1.Pod) error {
	taken := pod.HostPorts(b)
	for _, port := range pod.HostPorts(a) {
		if slices.Contains(taken, port) {
			return model.Faultf(model.CodeInvalidConf, "choose another hostPort, or stop that pod",
				"pod %s: hostPort %s is taken by pod %s", pod.Name(a), port, pod.Name(b))
		}
	}
	return nil
}

// end makes a pod undesired. A nil grace means the pod's own.
func (s *Server) end(w *worker, grace *time.Duration, force bool) error {
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
	if err := s.shelf.put(d); err != nil {
		return err
	}
	w.update(d)
	return nil
}

// find is the worker of a pod, by namespace and name, or with an empty namespace by uid.
func (s *Server) find(namespace, name string) (*worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		p := w.pod()
		if p.Namespace == namespace && p.Name == name || namespace == "" && string(p.UID) == name {
			return w, nil
		}
	}
	return nil, model.Faultf(model.CodeUnknownContainer, "see `weft sandbox list`", "there is no pod %s",
		fmt.Sprintf("%s/%s", namespace, name))
}

func (s *Server) all() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*worker, 0, len(s.workers))
	for _, w := range s.workers {
		out = append(out, w)
	}
	return out
}
