// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/ipam/blocks"
)

// controllerRuns looks at what the agent has found of the controller, which in Kubernetes is a program of its own.
func controllerRuns(_ context.Context, n Node) []Finding {
	if !n.Config.Kubernetes.InCluster {
		return skip("without Kubernetes, or with a kubeconfig, agents do the controller's work")
	}
	b, err := os.ReadFile(filepath.Join(n.Config.StateDir, blocks.NoControllerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	why := ""
	if err == nil {
		err = json.Unmarshal(b, &why)
	}
	if err != nil {
		return warn("", "controller: %v", err)
	}
	return warn(
		"apply the Deployment weft-controller of the manifests of this version (deploy/weft.yaml), and look at its log",
		"nobody looks after the pools of addresses: %s", why,
	)
}
