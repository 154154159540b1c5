// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"

	"github.com/weft-net/weft/deploy/chart"
	"github.com/weft-net/weft/internal/model"
)

// uninstallValue is the chart's value that replaces the agents by the cleaner.
const uninstallValue = "uninstall"

// UninstallOptions are those of a removal.
type UninstallOptions struct {
	// KeepData keeps weft's kinds with their objects: pools, blocks, claims, reservations.
	KeepData bool
	// AbandonNodes removes weft from the cluster although nodes are not clean.
	AbandonNodes bool
	// Wait bounds the wait for the nodes; it ends with the context.
	Wait func(context.Context) (context.Context, context.CancelFunc)
	// Progress is called with the nodes' states when they change.
	Progress func([]NodeState)
}

// Removal is the outcome of a removal.
type Removal struct {
	Nodes []NodeState `json:"nodes"`
	// Complete: nothing is left in the cluster. Otherwise pods of the network run on nodes that wait for them.
	Complete bool `json:"complete"`
	// Kept are objects that stay, and why.
	Kept []string `json:"kept,omitempty"`
	// ByHand is what root types on a node that does not answer.
	ByHand string `json:"-"`
}

// leaving reports whether a revision is one of a removal.
func leaving(last *releasev1.Release) bool {
	on, _ := last.Config[uninstallValue].(bool)
	return on
}

// Uninstall removes weft. First the agents are replaced by the DaemonSet weft-clean, as a revision of the release. When all
// nodes are clean, what weft has written to objects of the cluster, its kinds and the release are deleted. After an error,
// or when the process was killed, another call continues.
func (c *Cluster) Uninstall(ctx context.Context, o UninstallOptions) (Removal, error) {
	var out Removal
	if err := c.checkRights(ctx); err != nil {
		return out, err
	}
	if last, err := c.last(); err != nil {
		return out, err
	} else if last == nil {
		return out, c.notInstalled()
	}
	err := c.locked(ctx, func(ctx context.Context) error {
		last, err := c.last()
		if err != nil {
			return err
		}
		if last == nil { // another process has removed it meanwhile
			return c.notInstalled()
		}
		if err := c.unlockRelease(last); err != nil {
			return err
		}
		image, err := c.image(last)
		if err != nil {
			return err
		}
		out.ByHand = byHand(image, last.Config)
		if err := c.leave(ctx, last); err != nil {
			return err
		}
		waiting, cancel := o.Wait(ctx)
		defer cancel()
		out.Nodes, err = c.awaitNodes(waiting, o.Progress)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !errors.Is(err, waiting.Err()):
			return err
		case o.AbandonNodes:
		case !settled(out.Nodes):
			return notClean(out.Nodes, out.ByHand)
		case slices.ContainsFunc(out.Nodes, NodeState.Waiting):
			return nil
		}
		if out.Kept, err = c.removeObjects(ctx, o.KeepData); err != nil {
			return err
		}
		out.Complete = true
		return c.deleteRelease()
	})
	return out, err
}

func (c *Cluster) notInstalled() error {
	return model.Errorf(model.CodeInvalidConf, "kubectl delete -f deploy/weft.yaml removes what kubectl applied",
		"namespace %s has no release %s: weft is not installed by it", c.namespace, chart.Name)
}

// leave replaces the agents by the cleaner, unless that is done.
func (c *Cluster) leave(ctx context.Context, last *releasev1.Release) error {
	if leaving(last) && last.Info.Status.String() == "deployed" {
		return nil
	}
	values := maps.Clone(last.Config)
	if values == nil {
		values = map[string]any{}
	}
	values[uninstallValue] = true
	_, err := c.apply(ctx, last, Options{Values: values})
	return err
}

// image returns the image of a release.
func (c *Cluster) image(last *releasev1.Release) (string, error) {
	all, err := c.chart()
	if err != nil {
		return "", err
	}
	merged := map[string]any{}
	if defaults, ok := all.Values["image"].(map[string]any); ok {
		maps.Copy(merged, defaults)
	}
	if own, ok := last.Config["image"].(map[string]any); ok {
		maps.Copy(merged, own)
	}
	text := func(key string) string { s, _ := merged[key].(string); return s }
	switch {
	case text("digest") != "":
		return text("repository") + "@" + text("digest"), nil
	case text("tag") != "":
		return text("repository") + ":" + text("tag"), nil
	}
	return text("repository") + ":" + all.Metadata.AppVersion, nil
}

// deleteRelease deletes what the release made.
func (c *Cluster) deleteRelease() error {
	u := action.NewUninstall(c.actions)
	u.WaitStrategy, u.Timeout, u.DeletionPropagation = kube.StatusWatcherStrategy, timeout, "background"
	if _, err := u.Run(chart.Name); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}
