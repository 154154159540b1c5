// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// The workloads of the chart, whose pods have the label nameLabel.
const (
	agents     = "weft"
	controller = "weft-controller"
	tunnels    = "weft-tunnels"
	nameLabel  = "app.kubernetes.io/name"
)

// Workload is a set of pods.
type Workload struct {
	Name string `json:"name"`
	// Wanted, Updated and Ready count pods: all, those of the last revision, and those of them that are ready. Where pods of
	// earlier revisions stay, these count.
	Wanted  int `json:"wanted"`
	Updated int `json:"updated"`
	Ready   int `json:"ready"`
	// Pending is why there is nothing to count yet.
	Pending string `json:"pending,omitempty"`
}

func (w Workload) complete() bool {
	return w.Pending == "" && w.Updated == w.Wanted && w.Ready == w.Wanted
}

// Problem is a pod that is not ready, and why.
type Problem struct {
	Pod    string `json:"pod"`
	Node   string `json:"node,omitempty"`
	Reason string `json:"reason"`
}

// Rollout is how far the pods of the last revision are.
type Rollout struct {
	Workloads []Workload `json:"workloads"`
	Problems  []Problem  `json:"problems,omitempty"`
}

// Complete reports whether all pods are of the last revision, and ready.
func (r Rollout) Complete() bool {
	return !slices.ContainsFunc(r.Workloads, func(w Workload) bool { return !w.complete() })
}

// String is one line: "weft 1 of 2 ready; weft-x7k2p on node2: ImagePullBackOff: …".
func (r Rollout) String() string {
	var parts []string
	for _, w := range r.Workloads {
		switch {
		case w.Pending != "":
			parts = append(parts, w.Name+": "+w.Pending)
		case w.Updated < w.Wanted:
			parts = append(parts, fmt.Sprintf("%s: %d of %d pods are of this revision", w.Name, w.Updated, w.Wanted))
		default:
			parts = append(parts, fmt.Sprintf("%s: %d of %d pods are ready", w.Name, w.Ready, w.Wanted))
		}
	}
	for _, p := range r.Problems {
		parts = append(parts, p.String())
	}
	return strings.Join(parts, "; ")
}

// String is "weft-x7k2p on node2: ImagePullBackOff: …".
func (p Problem) String() string {
	if p.Node == "" {
		return p.Pod + ": " + p.Reason
	}
	return p.Pod + " on " + p.Node + ": " + p.Reason
}

// Rollout returns how far the pods are.
func (c *Cluster) Rollout(ctx context.Context) (Rollout, error) {
	var out Rollout
	d, err := c.client.AppsV1().DaemonSets(c.namespace).Get(ctx, agents, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return out, fmt.Errorf("agents: %w", err)
	}
	out.Workloads = append(out.Workloads, ofDaemonSet(agents, d, err == nil))
	switch d, err := c.client.AppsV1().DaemonSets(c.namespace).Get(ctx, tunnels, metav1.GetOptions{}); {
	case err == nil:
		out.Workloads = append(out.Workloads, ofDaemonSet(tunnels, d, true))
	case !apierrors.IsNotFound(err): // few back ends have it
		return out, fmt.Errorf("process of the tunnels: %w", err)
	}
	r, err := c.client.AppsV1().Deployments(c.namespace).Get(ctx, controller, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return out, fmt.Errorf("controller: %w", err)
	}
	out.Workloads = append(out.Workloads, ofDeployment(r, err == nil))
	if out.Complete() {
		return out, nil
	}
	pods, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: nameLabel + " in (" + strings.Join([]string{agents, controller, tunnels}, ",") + ")",
	})
	if err != nil {
		return out, fmt.Errorf("pods: %w", err)
	}
	for _, p := range pods.Items {
		if reason := notReady(p); reason != "" {
			out.Problems = append(out.Problems, Problem{p.Name, p.Spec.NodeName, c.withEvent(ctx, p, reason)})
		}
	}
	slices.SortFunc(out.Problems, func(a, b Problem) int { return cmp.Compare(a.Pod, b.Pod) })
	c.explainNodes(ctx, out.Problems)
	return out, nil
}

// maxExplained bounds the nodes that are read for one look at the pods.
const maxExplained = 20

// explainNodes replaces the reasons of pods whose node does not answer: what is known of the pod is outdated, and it never
// becomes ready. The reasons without it are better than none.
func (c *Cluster) explainNodes(ctx context.Context, problems []Problem) {
	reasons := map[string]string{}
	for i, p := range problems {
		if p.Node == "" {
			continue
		}
		reason, known := reasons[p.Node]
		if !known {
			if len(reasons) == maxExplained {
				return
			}
			n, err := c.client.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				reason = "the node does not exist any more; the pod is deleted within minutes"
			case err == nil:
				reason = unreachable(*n)
			}
			reasons[p.Node] = reason
		}
		if reason != "" {
			problems[i].Reason = reason
		}
	}
}

// unreachable returns why nothing is known of a node's pods; empty: the node answers. A node that answers and is not ready
// usually waits for weft.
func unreachable(n core.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == core.NodeReady && c.Status == core.ConditionUnknown {
			return fmt.Sprintf("the node has not answered since %s (%s): start it, and weft is installed on it; or delete it: "+
				"kubectl delete node %s", c.LastTransitionTime.UTC().Format(time.RFC3339), join(c.Reason, c.Message), n.Name)
		}
	}
	return ""
}

func ofDaemonSet(name string, d *apps.DaemonSet, there bool) Workload {
	w := Workload{Name: name}
	switch s := d.Status; {
	case !there:
		w.Pending = "there is no DaemonSet"
	case s.ObservedGeneration < d.Generation:
		w.Pending = "Kubernetes has not seen the change yet"
	case s.DesiredNumberScheduled == 0:
		w.Pending = "no node is selected"
	default:
		w.Wanted, w.Updated = int(s.DesiredNumberScheduled), int(s.UpdatedNumberScheduled)
		if d.Spec.UpdateStrategy.Type == apps.OnDeleteDaemonSetStrategyType {
			w.Updated = int(s.CurrentNumberScheduled) // pods of an earlier revision stay
		}
		w.Ready = min(w.Updated, int(s.NumberReady))
	}
	return w
}

func ofDeployment(d *apps.Deployment, there bool) Workload {
	w := Workload{Name: controller}
	switch s := d.Status; {
	case !there:
		w.Pending = "there is no Deployment"
	case s.ObservedGeneration < d.Generation:
		w.Pending = "Kubernetes has not seen the change yet"
	default:
		w.Wanted = 1
		if d.Spec.Replicas != nil {
			w.Wanted = int(*d.Spec.Replicas)
		}
		w.Updated = int(s.UpdatedReplicas)
		w.Ready = min(w.Updated, int(s.ReadyReplicas))
	}
	return w
}

// notReady returns why a pod is not ready; empty: it is.
func notReady(p core.Pod) string {
	if p.DeletionTimestamp != nil {
		return "it is being replaced"
	}
	conditions := map[core.PodConditionType]core.PodCondition{}
	for _, c := range p.Status.Conditions {
		conditions[c.Type] = c
	}
	if conditions[core.PodReady].Status == core.ConditionTrue {
		return ""
	}
	if s := conditions[core.PodScheduled]; s.Status == core.ConditionFalse {
		return "no node has room for it: " + s.Message
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		name := "container " + s.Name + ": "
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "PodInitializing":
			reason := name + join(s.State.Waiting.Reason, s.State.Waiting.Message)
			if t := s.LastTerminationState.Terminated; t != nil {
				reason += fmt.Sprintf("; it exited with %d: %s", t.ExitCode, join(t.Reason, lastWords(t.Message)))
			}
			return reason
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			t := s.State.Terminated
			return fmt.Sprintf("%sit exited with %d: %s", name, t.ExitCode, join(t.Reason, lastWords(t.Message)))
		}
	}
	if p.Status.Message != "" {
		return p.Status.Message
	}
	return "it runs and is not ready yet"
}

// lastWords returns the last two lines of a container's log: weft's programs end with an error, and perhaps a hint.
func lastWords(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	lines = lines[max(0, len(lines)-2):]
	if len(lines) == 2 && !strings.HasPrefix(strings.TrimSpace(lines[1]), "hint:") {
		lines = lines[1:]
	}
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, " ")
}

func join(reason, message string) string {
	return strings.TrimSuffix(strings.TrimSpace(reason+": "+strings.TrimSpace(message)), ":")
}

// withEvent adds the last warning about a pod; the reason without it is better than none.
func (c *Cluster) withEvent(ctx context.Context, p core.Pod, reason string) string {
	events, err := c.client.CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(p.UID)).String(),
	})
	if err != nil {
		return reason
	}
	var last core.Event
	for _, e := range events.Items {
		if e.Type == core.EventTypeWarning && !e.LastTimestamp.Time.Before(last.LastTimestamp.Time) {
			last = e
		}
	}
	if last.Message == "" || strings.Contains(reason, last.Message) {
		return reason
	}
	return reason + " (" + last.Reason + ": " + strings.TrimSpace(last.Message) + ")"
}

// pollTime is the pause between two looks at the pods.
const pollTime = time.Second

// Wait waits until all pods are of the last revision and ready. It passes what it waits for to progress, when that
// changes. The error, when ctx ends, says what is not ready.
func (c *Cluster) Wait(ctx context.Context, progress func(Rollout)) error {
	last := ""
	var r Rollout
	calls, cancel := withoutDeadline(ctx)
	defer cancel()
	for {
		now, err := c.Rollout(calls)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && now.Complete():
			return nil
		case err == nil:
			r = now
		}
		if text := r.String(); text != last && ctx.Err() == nil {
			last = text
			progress(r)
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("not ready: %s", r), ctx.Err())
		case <-time.After(pollTime):
		}
	}
}
