// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/ipam/poolrequest"
)

// controllerLease reads whether the agent has found the Lease of a running controller.
func controllerLease(_ context.Context, n Node) []Finding {
	if !n.Config.Kubernetes.InCluster {
		return skip("not needed: without kubernetes.inCluster the agents do the controller's work")
	}
	b, err := os.ReadFile(filepath.Join(n.Config.StateDir, poolrequest.NoControllerFile))
	if errors.Is(err, fs.ErrNotExist) {
		if !n.AgentAnswers {
			return n.unknown("")
		}
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
		"apply the Deployment weft-controller of this version's manifests (deploy/weft.yaml), and see its log",
		"no controller reconciles the address pools: %s", why,
	)
}
