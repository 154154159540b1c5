// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/calico"
)

// calicoPolicies looks at what the agent has found of Calico's own policies.
func calicoPolicies(_ context.Context, n Node) []Finding {
	b, err := os.ReadFile(filepath.Join(n.Config.StateDir, calico.PoliciesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var policies []string
	if err == nil {
		err = json.Unmarshal(b, &policies)
	}
	if err != nil {
		return warn("", "Calico's policies: %v", err)
	}
	if len(policies) == 0 {
		return nil
	}
	return warn("rewrite them as NetworkPolicy or ClusterNetworkPolicy, or delete them",
		"Calico's own policies are not enforced by weft: %s", calico.Naming(policies))
}
