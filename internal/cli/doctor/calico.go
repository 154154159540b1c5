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

// calicoPolicies reads which of Calico's own policies the agent does not enforce.
func calicoPolicies(_ context.Context, n Node) []Finding {
	b, err := os.ReadFile(filepath.Join(n.Config.StateDir, calico.PoliciesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return n.unknown("the agent has not listed Calico's policies")
	}
	var policies []string
	if err == nil {
		err = json.Unmarshal(b, &policies)
	}
	if err != nil {
		return warn("", "Calico's policies: %v", err)
	}
	if len(policies) == 0 {
		if !n.AgentAnswers {
			return n.unknown("")
		}
		return nil
	}
	return warn("rewrite them, or delete them",
		"weft does not enforce these objects of Calico, or only in part: %s", calico.Summary(policies))
}
