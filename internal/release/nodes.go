// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weft-net/weft/internal/model"
)

// cleaner is the chart's DaemonSet that removes what weft has made on each node.
const cleaner = "weft-clean"

// The states of a node, as the last line of the cleaner's log has them.
const (
	stateClean   = "clean"
	stateWaiting = "waiting for pods: "
)

// NodeState is how far the removal from a node is.
type NodeState struct {
	Node string `json:"node"`
	// State is "clean", "waiting for pods: …", or why the node does not answer, or is not clean.
	State string `json:"state"`
}

// Clean reports whether nothing of weft is left on the node.
func (s NodeState) Clean() bool { return s.State == stateClean }

// Waiting reports whether pods of the node keep their network, and nothing else is left.
func (s NodeState) Waiting() bool { return strings.HasPrefix(s.State, stateWaiting) }

// String is "node1: clean".
func (s NodeState) String() string { return s.Node + ": " + s.State }

// settled reports whether all nodes are clean, or wait for pods.
func settled(nodes []NodeState) bool {
	return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(s NodeState) bool { return !s.Clean() && !s.Waiting() })
}

// endless reports whether nodes have settled, and those that wait for pods have some that are not about to end.
func (c *Cluster) endless(ctx context.Context, nodes []NodeState) (bool, error) {
	if !settled(nodes) {
		return false, nil
	}
	has := map[string]bool{}
	err := c.eachPodOfNetwork(ctx, func(p core.Pod) { has[p.Spec.NodeName] = true })
	return !slices.ContainsFunc(nodes, func(s NodeState) bool { return s.Waiting() && !has[s.Node] }), err
}

// errSelected reports that Kubernetes has not chosen the cleaner's nodes yet.
var errSelected = errors.New("Kubernetes has not chosen the nodes yet")

// nodeStates returns the state of each node on which the cleaner should run.
func (c *Cluster) nodeStates(ctx context.Context) ([]NodeState, error) {
	d, err := c.client.AppsV1().DaemonSets(c.namespace).Get(ctx, cleaner, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	pods, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: nameLabel + "=" + cleaner})
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	if d.Status.ObservedGeneration < d.Generation || int(d.Status.CurrentNumberScheduled) < int(d.Status.DesiredNumberScheduled) {
		return nil, errSelected
	}
	var out []NodeState
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil || p.Spec.NodeName == "" {
			continue
		}
		state, err := c.nodeState(ctx, p)
		if err != nil {
			return nil, err
		}
		out = append(out, NodeState{p.Spec.NodeName, state})
	}
	if len(out) < int(d.Status.DesiredNumberScheduled) {
		return nil, errSelected
	}
	slices.SortFunc(out, func(a, b NodeState) int { return cmp.Compare(a.Node, b.Node) })
	return out, nil
}

// nodeState returns the state of the node of one of the cleaner's pods.
func (c *Cluster) nodeState(ctx context.Context, p core.Pod) (string, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, p.Spec.NodeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "it does not exist any more", nil
	case err != nil:
		return "", fmt.Errorf("node %s: %w", p.Spec.NodeName, err)
	}
	silent := ""
	for _, condition := range node.Status.Conditions {
		if condition.Type == core.NodeReady && condition.Status == core.ConditionUnknown {
			silent = "its kubelet does not answer since " + condition.LastTransitionTime.Format(time.DateTime)
		}
	}
	switch {
	case silent != "":
		return silent, nil
	case p.Status.Phase != core.PodRunning:
		reason := notReady(p)
		return c.withEvent(ctx, p, cmp.Or(reason, "it starts")), nil
	}
	lines := int64(1)
	limited, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	log, err := c.client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &core.PodLogOptions{TailLines: &lines}).Stream(limited)
	if err != nil {
		return "the log of its pod " + p.Name + " cannot be read: " + err.Error(), nil
	}
	defer func() { _ = log.Close() }()
	return cmp.Or(lastLine(log), "it begins"), nil
}

// logTime bounds the request for a log, which the node's kubelet answers.
const logTime = 10 * time.Second

func lastLine(r io.Reader) string {
	last := ""
	for s := bufio.NewScanner(r); s.Scan(); {
		last = s.Text()
	}
	return strings.TrimSpace(last)
}

// withoutDeadline returns a context for calls that ends with ctx, but has no deadline: the client's rate limiter refuses a call
// whose turn comes after the deadline at once, with an error of no type, and not as the end of the context.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	return calls, func() { stop(); cancel() }
}

// awaitNodes waits until all nodes are clean or wait for pods. It passes the states to progress when they change. When ctx
// ends, the states are the last ones.
func (c *Cluster) awaitNodes(ctx context.Context, progress func([]NodeState)) ([]NodeState, error) {
	var nodes []NodeState
	calls, cancel := withoutDeadline(ctx)
	defer cancel()
	for {
		now, err := c.nodeStates(calls)
		var ended bool
		if err == nil {
			ended, err = c.endless(calls, now)
		}
		switch {
		case err != nil && !errors.Is(err, errSelected) && ctx.Err() == nil:
			return nodes, err
		case err == nil && ended:
			return now, nil
		case err == nil && !slices.Equal(now, nodes):
			nodes = now
			progress(nodes)
		}
		select {
		case <-ctx.Done():
			return nodes, ctx.Err()
		case <-time.After(pollTime):
		}
	}
}

// byHand is what root types on a node that does not answer, with the runtime's own client.
func byHand(image string, values map[string]any) string {
	text := "ctr -n k8s.io run --rm --privileged --net-host --mount type=bind,src=/,dst=/host,options=rbind:rw " + image +
		" weft-clean /usr/bin/weft-agent clean --from weft --root /host --wait"
	cni, _ := values["cni"].(map[string]any)
	for _, option := range [][2]string{{"confDir", " --conf-dir "}, {"binDir", " --cni-bin-dir "}} {
		if dir, set := cni[option[0]].(string); set {
			text += option[1] + dir
		}
	}
	return text
}

// notClean is the error about nodes that are not clean.
func notClean(nodes []NodeState, byHand string) error {
	var parts []string
	for _, n := range nodes {
		if !n.Clean() && !n.Waiting() {
			parts = append(parts, n.String())
		}
	}
	if len(parts) == 0 {
		parts = []string{errSelected.Error()}
	}
	return model.Errorf(model.CodeTryAgain,
		"weft cluster uninstall continues; for a node that does not come back add --abandon-nodes, and when it is back type there: "+
			byHand, "weft is not removed from all nodes: %s", strings.Join(parts, "; "))
}
