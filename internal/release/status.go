// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status is the release and its pods.
type Status struct {
	// Installed: there is a release. Without one the pods may be those of kubectl.
	Installed bool   `json:"installed"`
	Revision  int    `json:"revision,omitempty"`
	State     string `json:"state,omitempty"` // Helm's: deployed, failed, pending-install …
	// Description is Helm's last word about the revision, Version that of the chart's application.
	Description string         `json:"description,omitempty"`
	Version     string         `json:"version,omitempty"`
	Since       time.Time      `json:"since,omitzero"`
	Values      map[string]any `json:"values,omitempty"`
	Rollout     Rollout        `json:"rollout"`
	// Leaving: weft is being removed. Nodes are the nodes' states then.
	Leaving bool        `json:"leaving,omitempty"`
	Nodes   []NodeState `json:"nodes,omitempty"`
}

// Status returns the state of the release and its pods.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	var out Status
	last, err := c.last()
	if err != nil {
		return out, err
	}
	if last != nil {
		out = Status{
			Installed: true, Revision: last.Version, State: last.Info.Status.String(), Description: last.Info.Description,
			Since: last.Info.LastDeployed, Values: last.Config,
		}
		if last.Chart != nil && last.Chart.Metadata != nil {
			out.Version = last.Chart.Metadata.AppVersion
		}
	}
	if last != nil && leaving(last) {
		out.Leaving = true
		out.Nodes, err = c.nodeStates(ctx)
		if errors.Is(err, errSelected) {
			err = nil
		}
		return out, err
	}
	out.Rollout, err = c.Rollout(ctx)
	return out, err
}

// PodsOfNetwork counts the pods that are not in their node's network, by namespace: a removal leaves them without repair.
func (c *Cluster) PodsOfNetwork(ctx context.Context) (map[string]int, error) {
	count := map[string]int{}
	err := c.eachPodOfNetwork(ctx, func(p core.Pod) { count[p.Namespace]++ })
	return count, err
}

// eachPodOfNetwork calls f with the pods that run, are not about to end, and are not in their node's network.
func (c *Cluster) eachPodOfNetwork(ctx context.Context, f func(core.Pod)) error {
	for next := ""; ; {
		page, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
			Limit: 500, Continue: next, FieldSelector: "status.phase=Running",
		})
		if err != nil {
			return fmt.Errorf("pods: %w", err)
		}
		for _, p := range page.Items {
			if !p.Spec.HostNetwork && p.DeletionTimestamp == nil {
				f(p)
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}
