// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/plan/explain"
)

// pageFacts remembers the facts about nodes for a short time: the views that need them, and each step into the map, ask for
// the same. With many nodes asking takes seconds.
type pageFacts struct {
	mu    sync.Mutex
	nodes map[string]rememberedFacts
	took  time.Duration // the last time that all were asked
}

type rememberedFacts struct {
	facts   explain.Node
	summary bool
	at      time.Time
}

// factsAge is how old facts may be; those of many nodes, three times the time that asking takes.
const factsAge = 2 * time.Second

// known returns the facts about nodes that are not old, with all peers of those in linked.
func (f *pageFacts) known(linked []string) map[string]explain.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]explain.Node{}
	for node, r := range f.nodes {
		old := time.Since(r.at) > max(factsAge, min(3*f.took, time.Minute))
		if !old && (!r.summary || !slices.Contains(linked, node)) {
			out[node] = r.facts
		}
	}
	return out
}

func (f *pageFacts) remember(node string, r rememberedFacts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes == nil {
		f.nodes = map[string]rememberedFacts{}
	}
	f.nodes[node] = r
}

// ask returns the facts about the nodes of a cluster, with all peers of those in linked. silent has the errors of agents
// that did not answer, by node.
func (f *pageFacts) ask(ctx context.Context, c agents.Cluster, linked []string) (facts map[string]explain.Node, silent map[string]string) {
	known := f.known(linked)
	facts = map[string]explain.Node{}
	began, missing := time.Now(), c
	missing.Agents = nil
	for _, a := range c.Agents {
		if n, has := known[a.Node]; has {
			facts[a.Node] = n
		} else {
			missing.Agents = append(missing.Agents, a)
		}
	}
	silent = askEach(ctx, missing, func(node string) (adminapi.Request, func(explain.Node)) {
		summary := !slices.Contains(linked, node)
		return factsRequest(summary), func(n explain.Node) {
			f.remember(node, rememberedFacts{n, summary, began})
			facts[node] = n
		}
	})
	if len(facts) == len(missing.Agents) { // all were asked, and answered
		f.mu.Lock()
		defer f.mu.Unlock()
		f.took = time.Since(began)
	}
	return facts, silent
}
