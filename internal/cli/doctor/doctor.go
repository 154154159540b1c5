// SPDX-License-Identifier: Apache-2.0

// Package doctor checks one node's network and suggests fixes. It needs no agent, no API server and no network, and it
// changes nothing. A check that cannot be made is a finding, too.
package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/cluster/config"
)

// Level is the severity of a finding.
type Level string

// The levels. Bad: CNI calls fail, or pods have no network. Warn: something is likely to fail later. Skip: the check was
// not made, and the message says why.
const (
	Skip Level = "skip"
	Good Level = "ok"
	Warn Level = "warn"
	Bad  Level = "bad"
)

// Finding is one result of a check.
type Finding struct {
	// Check is the check's name, which is stable.
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Message string `json:"says"`
	// Hint says how to fix it.
	Hint string `json:"hint,omitempty"`
}

// Node is the node that is checked.
type Node struct {
	Config config.Config
	// Source says where Config is from.
	Source string
	// AgentAnswers reports whether Config is from the running agent.
	AgentAnswers bool
	// AgentHangs reports that a process listens at the agent's socket, and did not answer in time.
	AgentHangs bool
	// Root is prepended to the paths of /proc; empty but in tests.
	Root string
	// NodeRoot is prepended to the runtime's paths: where the node's root file system is mounted.
	NodeRoot string
}

// check is one check. A run without findings is reported as ok with the text of pass.
type check struct {
	name string
	pass string
	run  func(ctx context.Context, n Node) []Finding
}

func checks() []check {
	return []check{
		{"settings", "", settingsSource},
		{"agent", "it answers", agentAlive},
		{"ready", "the agent is ready", agentReady},
		{"queue", "no queued DELs", queuedDELs},
		{"programs", "weft-cni, loopback and the network's plugins are installed", programs},
		{"configuration", "the runtime's first network is weft's", configurations},
		{"runtime", "it reports NetworkReady", runtimeReady},
		{"kernel", "IPv4 forwarding is on, rp_filter is not strict, conntrack is not full", kernelSettings},
		{"iptables", "weft can read all legacy iptables rules", legacyIPTables},
		{"attachments", "each matches the result of its ADD", attachmentsIntact},
		{"mesh", "the kernel matches the plan", meshReconciled},
		{"name", "no other host uses this node's name", duplicateNode},
		{"controller", "it runs, or is not needed", controllerLease},
		{"policies", "Calico has no policies that weft does not enforce", calicoPolicies},
		{"machines", "each VM's network matches its plan", vmsIntact}, // the stable name of the check
		{"disk", "there is enough free space for state and addresses", freeSpace},
	}
}

// Examine runs all checks in a stable order. The result has at least one finding for each.
func Examine(ctx context.Context, n Node) []Finding {
	var all []Finding
	for _, c := range checks() {
		all = append(all, c.findings(ctx, n)...)
	}
	return all
}

// Within runs the checks in parallel, except those of some names, until ctx ends. It returns then, even if a check
// hangs, and the finding of an unfinished check is Skip.
func Within(ctx context.Context, n Node, except ...string) []Finding {
	return within(ctx, n, slices.DeleteFunc(checks(), func(c check) bool { return slices.Contains(except, c.name) }))
}

func within(ctx context.Context, n Node, all []check) []Finding {
	results := make([]chan []Finding, len(all))
	for i, c := range all {
		results[i] = make(chan []Finding, 1)
		go func() { results[i] <- c.findings(ctx, n) }()
	}
	var out []Finding
	for i, c := range all {
		select {
		case found := <-results[i]:
			out = append(out, found...)
			continue
		case <-ctx.Done():
		}
		select {
		case found := <-results[i]: // both were ready
			out = append(out, found...)
		default:
			out = append(out, Finding{Check: c.name, Level: Skip, Message: "not checked: the time ran out"})
		}
	}
	return out
}

// findings runs the check.
func (c check) findings(ctx context.Context, n Node) []Finding {
	found := c.run(ctx, n)
	if len(found) == 0 {
		found = []Finding{{Level: Good, Message: c.pass}}
	}
	for i := range found {
		found[i].Check = c.name
	}
	return found
}

// Worst returns the worst level of the findings.
func Worst(all []Finding) Level {
	order := []Level{Skip, Good, Warn, Bad}
	worst := 1
	for _, f := range all {
		worst = max(worst, slices.Index(order, f.Level))
	}
	return order[worst]
}

func bad(hint, format string, args ...any) []Finding {
	return []Finding{{Level: Bad, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

func warn(hint, format string, args ...any) []Finding {
	return []Finding{{Level: Warn, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// skip returns a finding that says why a check was not made.
func skip(format string, args ...any) []Finding {
	return []Finding{{Level: Skip, Message: fmt.Sprintf(format, args...)}}
}
