// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at one node and says what is wrong with its network, and the way out. It needs no agent, no API
// server and no network: what it cannot look at is a finding as well. It changes nothing.
package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/cluster/config"
)

// Level says how bad a finding is.
type Level string

// The levels. With a Bad one new pods cannot be served, or pods have no network; a Warn one will hurt some day. Skip is
// no outcome: the finding says why the look was not made.
const (
	Skip Level = "skip"
	Good Level = "ok"
	Warn Level = "warn"
	Bad  Level = "bad"
)

// Finding is the outcome of one look.
type Finding struct {
	// Check is the look's stable name.
	Check string `json:"check"`
	Level Level  `json:"level"`
	Says  string `json:"says"`
	// Hint is the way out.
	Hint string `json:"hint,omitempty"`
}

// Node is what is looked at.
type Node struct {
	Config config.Config
	// Source says where Config is from.
	Source string
	// Root is put before the paths of the kernel's files; empty but in tests.
	Root string
	// NodeRoot is put before the paths that the runtime uses: where the node's own file system is seen.
	NodeRoot string
}

// look is one check: nothing is well, several findings are possible.
type look struct {
	name string
	well string // what is said when nothing is wrong
	look func(ctx context.Context, n Node) []Finding
}

func looks() []look {
	return []look{
		{"settings", "", settingsUsed},
		{"agent", "it answers", agentAnswers},
		{"ready", "the agent says that it is ready", agentReady},
		{"queue", "no DEL waits", queueEmpty},
		{"programs", "the runtime has weft-cni, loopback and what the network names", programs},
		{"configuration", "the runtime's first network is weft's", configurations},
		{"runtime", "it finds the network ready", runtimeReady},
		{"kernel", "it forwards, and filters what weft needs", kernelSettings},
		{"iptables", "of the older kind nothing is there, or it can be read", iptablesRead},
		{"attachments", "each is as its ADD left it", attachmentsWhole},
		{"mesh", "the plan for the other nodes is in force", meshInForce},
		{"name", "no other machine claims addresses as this node", nameTaken},
		{"controller", "the agent has found one, or needs none", controllerRuns},
		{"policies", "the agent has found no policies that are not enforced", calicoPolicies},
		{"machines", "virtual machines are in their pods as they were made", machinesWhole},
		{"disk", "there is room for state and addresses", roomLeft},
	}
}

// Examine makes all looks, in a stable order; the result has at least one finding for each.
func Examine(ctx context.Context, n Node) []Finding {
	var all []Finding
	for _, l := range looks() {
		found := l.look(ctx, n)
		if len(found) == 0 {
			found = []Finding{{Level: Good, Says: l.well}}
		}
		for _, f := range found {
			f.Check = l.name
			all = append(all, f)
		}
	}
	return all
}

// Worst is the worst level among findings.
func Worst(all []Finding) Level {
	order := []Level{Skip, Good, Warn, Bad}
	worst := 1
	for _, f := range all {
		worst = max(worst, slices.Index(order, f.Level))
	}
	return order[worst]
}

func bad(hint, format string, args ...any) []Finding {
	return []Finding{{Level: Bad, Says: fmt.Sprintf(format, args...), Hint: hint}}
}

func warn(hint, format string, args ...any) []Finding {
	return []Finding{{Level: Warn, Says: fmt.Sprintf(format, args...), Hint: hint}}
}

// skip says why a look was not made.
func skip(format string, args ...any) []Finding {
	return []Finding{{Level: Skip, Says: fmt.Sprintf(format, args...)}}
}
