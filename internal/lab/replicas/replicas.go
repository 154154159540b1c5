// SPDX-License-Identifier: Apache-2.0

// Package replicas computes the pods of Deployments and ReplicaSets in a lab. Names are derived from the owner, the template
// and a number, so that two controllers, or one that was killed and its successor, create the same pods.
package replicas

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// OwnerAnnotation names the owner of a pod, KIND/NAME.
const OwnerAnnotation = "lab.weft.dev/owner"

// HashLabel is the label with the hash of the template, as Deployments have it.
const HashLabel = "pod-template-hash"

// Max is the largest number of replicas of one owner.
const Max = 1000

// NewUID returns a random UID for a pod.
func NewUID() string { return store.DeriveUID(store.Key{Name: rand.Text()}) }

// Set is a Deployment or a ReplicaSet.
type Set struct {
	Key      store.Key
	Replicas int
	template map[string]any
	hash     string
}

// Name returns the set's name for messages, for example "Deployment default/web".
func (s Set) Name() string { return s.Key.Kind + " " + s.Key.Namespace + "/" + s.Key.Name }

// owner is the value of OwnerAnnotation.
func (s Set) owner() string { return s.Key.Kind + "/" + s.Key.Name }

// Is reports whether an object is a Deployment or a ReplicaSet.
func Is(o store.Object) bool { return IsKey(o.Key) }

// IsKey reports whether a key is that of a Deployment or a ReplicaSet.
func IsKey(k store.Key) bool {
	return k.Group == "apps" && (k.Kind == "Deployment" || k.Kind == "ReplicaSet")
}

// Read reads a Deployment or a ReplicaSet. Errors name the field.
func Read(o store.Object) (Set, error) {
	var in struct {
		Spec struct {
			Replicas *int `json:"replicas"`
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}
	s := Set{Key: o.Key, Replicas: 1}
	if err := json.Unmarshal(o.Raw, &in); err != nil {
		return s, model.Errorf(model.CodeDecode, "see `kubectl explain deployment.spec`", "%s: %w", s.Name(), err)
	}
	if in.Spec.Replicas != nil {
		s.Replicas = *in.Spec.Replicas
	}
	if s.Replicas < 0 || s.Replicas > Max {
		return s, model.Errorf(model.CodeInvalidConf, fmt.Sprintf("write a number from 0 to %d", Max),
			"%s: spec.replicas %d is out of range", s.Name(), s.Replicas)
	}
	s.template = in.Spec.Template
	spec, _ := s.template["spec"].(map[string]any)
	if spec == nil {
		return s, model.Errorf(model.CodeInvalidConf, "write the pod that is to run there", "%s: spec.template.spec is missing",
			s.Name())
	}
	meta, _ := s.template["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	if len(in.Spec.Selector.MatchLabels) == 0 {
		return s, model.Errorf(model.CodeInvalidConf, "write labels that spec.template.metadata.labels has, too",
			"%s: spec.selector.matchLabels is empty", s.Name())
	}
	for k, v := range in.Spec.Selector.MatchLabels {
		if labels[k] != v {
			return s, model.Errorf(model.CodeInvalidConf, "the labels of the template must have those of the selector",
				"%s: spec.selector.matchLabels %s: %s is not in spec.template.metadata.labels", s.Name(), k, v)
		}
	}
	text, err := json.Marshal(s.template)
	if err != nil {
		return s, fmt.Errorf("%s: %w", s.Name(), err)
	}
	s.hash = fmt.Sprintf("%x", sha256.Sum256(text))[:8]
	return s, nil
}

// podName returns the name of a replica. As in Kubernetes, a changed template of a Deployment makes new pods, and that of a
// ReplicaSet only shows in pods that are created later.
func (s Set) podName(i int) string {
	if s.Key.Kind == "ReplicaSet" {
		return fmt.Sprintf("%s-%d", s.Key.Name, i)
	}
	return fmt.Sprintf("%s-%s-%d", s.Key.Name, s.hash, i)
}

// pod returns the manifest of a replica.
func (s Set) pod(name, uid string) (store.Object, error) {
	meta := map[string]any{}
	if m, ok := s.template["metadata"].(map[string]any); ok {
		maps.Copy(meta, m)
	}
	meta["name"], meta["namespace"], meta["uid"] = name, s.Key.Namespace, uid
	labels, annotations := map[string]any{}, map[string]any{}
	if m, ok := meta["labels"].(map[string]any); ok {
		maps.Copy(labels, m)
	}
	if m, ok := meta["annotations"].(map[string]any); ok {
		maps.Copy(annotations, m)
	}
	if s.Key.Kind == "Deployment" {
		labels[HashLabel] = s.hash
	}
	annotations[OwnerAnnotation] = s.owner()
	meta["labels"], meta["annotations"] = labels, annotations
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": s.template["spec"]})
	if err != nil {
		return store.Object{}, fmt.Errorf("%s: %w", s.Name(), err)
	}
	o, err := store.NewObject(raw)
	if err != nil {
		return o, fmt.Errorf("%s: template: %w", s.Name(), err)
	}
	return o, nil
}

// Change is what is to be created and deleted.
type Change struct {
	Create []store.Object
	Delete []store.Key
}

// Plan returns the changes that make the pods those of the sets. Pods of an earlier template of a Deployment are deleted when
// as many of the new one run, so that some always run. newUID returns a new UID. Invalid sets are errors, and their pods
// are left as they are.
func Plan(sets []store.Object, pods []model.Pod, newUID func() string) (Change, error) {
	var c Change
	var errs []error
	owned := map[string][]model.Pod{}
	for _, p := range pods {
		if o := p.Annotations[OwnerAnnotation]; o != "" {
			owned[p.Namespace+"/"+o] = append(owned[p.Namespace+"/"+o], p)
		}
	}
	for _, o := range sets {
		key := o.Key.Namespace + "/" + o.Key.Kind + "/" + o.Key.Name
		have := owned[key]
		delete(owned, key)
		s, err := Read(o)
		if err == nil {
			err = s.plan(have, newUID, &c)
		}
		errs = append(errs, err)
	}
	for _, orphans := range owned { // the owner was deleted
		for _, p := range orphans {
			c.Delete = append(c.Delete, store.PodKey(p.Namespace, p.Name))
		}
	}
	slices.SortFunc(c.Delete, func(a, b store.Key) int { return strings.Compare(a.String(), b.String()) })
	return c, errors.Join(errs...)
}

func (s Set) plan(have []model.Pod, newUID func() string, c *Change) error {
	wanted, running := map[string]bool{}, 0
	for i := range s.Replicas {
		wanted[s.podName(i)] = true
	}
	var others []model.Pod
	for _, p := range have {
		switch {
		case !wanted[p.Name]:
			others = append(others, p)
			continue
		case p.Phase == "Running":
			running++
		}
		delete(wanted, p.Name)
	}
	for i := range s.Replicas {
		if !wanted[s.podName(i)] {
			continue
		}
		o, err := s.pod(s.podName(i), newUID())
		if err != nil {
			return err
		}
		c.Create = append(c.Create, o)
	}
	// Those of the current template are surplus; those of an earlier one are replaced by pods that run.
	keep := s.Replicas - running
	for _, p := range others {
		if s.Key.Kind == "Deployment" && p.Labels[HashLabel] != s.hash && keep > 0 {
			keep--
			continue
		}
		c.Delete = append(c.Delete, store.PodKey(p.Namespace, p.Name))
	}
	return nil
}

// Sample returns the manifest of one replica, for validation.
func (s Set) Sample() (store.Object, error) { return s.pod(s.podName(0), "") }

// Owns reports whether a pod is one of the set.
func (s Set) Owns(p model.Pod) bool { return Owned(p, s.Key) }

// Owned reports whether a pod is one of a set with a key.
func Owned(p model.Pod, k store.Key) bool {
	return IsKey(k) && p.Namespace == k.Namespace && p.Annotations[OwnerAnnotation] == k.Kind+"/"+k.Name
}

// Ready counts the pods of a set's current template that run.
func (s Set) Ready(pods []model.Pod) int {
	n := 0
	for i := range s.Replicas {
		if slices.ContainsFunc(pods, func(p model.Pod) bool {
			return p.Namespace == s.Key.Namespace && p.Name == s.podName(i) && p.Phase == "Running" &&
				p.Annotations[OwnerAnnotation] == s.owner()
		}) {
			n++
		}
	}
	return n
}

// Status is a Deployment or a ReplicaSet with the pods of its current template. The keys of its JSON form are stable.
type Status struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Replicas  int    `json:"replicas"`
	Ready     int    `json:"ready"`
}

// StatusOf returns the status of all sets. Errors are those of invalid sets.
func StatusOf(sets []store.Object, pods []model.Pod) ([]Status, error) {
	out := []Status{}
	var errs []error
	for _, o := range sets {
		if !Is(o) {
			continue
		}
		s, err := Read(o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, Status{
			Kind: s.Key.Kind, Namespace: s.Key.Namespace, Name: s.Key.Name, Replicas: s.Replicas, Ready: s.Ready(pods),
		})
	}
	return out, errors.Join(errs...)
}
