// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"

	"github.com/weft-net/weft/internal/cli/doctor"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/node/nodestatus"
)

// examine makes the checks of weft doctor in the agent's own process, without those that the agent makes for its status.
func examine(ctx context.Context, settings config.Config) []nodestatus.Finding {
	n := doctor.Node{Config: settings, AgentAnswers: true, NodeRoot: settings.Install.HostRoot}
	levels := map[doctor.Level]nodestatus.Level{
		doctor.Bad: nodestatus.Bad, doctor.Warn: nodestatus.Warn, doctor.Skip: nodestatus.Skip,
	}
	var out []nodestatus.Finding
	except := []string{"settings", "attachments", "mesh", "machines"} // glossary: a check's stable name
	for _, f := range doctor.Within(ctx, n, except...) {
		if level, reported := levels[f.Level]; reported {
			out = append(out, nodestatus.Finding{Level: level, Check: "doctor " + f.Check, Message: f.Message, Hint: f.Hint})
		}
	}
	return out
}
