// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/ipam/blocks"
)

// controllerFirst is when an agent looks for the controller first, controllerEvery how often then.
const controllerFirst, controllerEvery = time.Minute, 5 * time.Minute

// apart reports whether the controller is a program of its own: an agent that is a pod has a node's rights alone.
func (a *agent) apart() bool { return a.kube != nil && a.cfg.Kubernetes.InCluster }

// awaitServer ends with an error where the API server is too old for an agent that is a pod.
func awaitServer(ctx context.Context, s *kube.Store, inCluster bool, cfg Config) error {
	if !inCluster {
		return nil
	}
	return s.AwaitVersion(ctx, cfg.After)
}

// watchController warns where no controller looks after the pools that this node gives addresses of: the manifests of a version
// before it was a program of its own have none. It is noted in the state directory for weft doctor.
func (a *agent) watchController(ctx context.Context) error {
	var seen controller.Sign
	path := filepath.Join(a.cfg.StateDir, blocks.NoControllerFile)
	pause, warned := controllerFirst, ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.After(pause):
		}
		pause = controllerEvery
		trouble := ""
		if a.pooled() {
			sign, err := controller.Look(ctx, a.objects())
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				trouble = err.Error()
			case sign == controller.Sign{}:
				trouble = "there is no controller"
			case sign == seen:
				trouble = "the controller does not run: " + sign.Holder + " is silent"
			}
			seen = sign
		}
		if trouble != warned {
			if warned = trouble; trouble != "" {
				a.cfg.Log.Warn("nobody looks after the pools of addresses; apply the Deployment weft-controller of the manifests", "why", trouble)
			}
			if err := note(path, trouble, trouble == ""); err != nil {
				a.cfg.Log.Warn("that there is no controller is not noted", "err", err)
			}
		}
	}
}
