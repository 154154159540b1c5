// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/lab/reach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// mostVerdicts is how many connections an agent is asked about at a time.
const mostVerdicts = 2000

// expect says what the lab's network policies say of flows. Of each it asks the agent of the node that it goes to. An
// agent that is dead has left its rules in the kernel and is stood in for by another one; without any, nothing is known
// to be denied.
func (st Status) expect(ctx context.Context, flows []reach.Flow) ([]bool, error) {
	out := make([]bool, len(flows))
	byNode := map[string][]int{}
	for i, f := range flows {
		out[i] = true
		byNode[st.agentOf(f.To)] = append(byNode[st.agentOf(f.To)], i)
	}
	none, err := st.noPolicies(ctx, byNode)
	if none || err != nil {
		return out, err
	}
	for node, indexes := range byNode {
		for len(indexes) > 0 {
			some := indexes[:min(len(indexes), mostVerdicts)]
			indexes = indexes[len(some):]
			queries := make([]compiled.Query, 0, len(some))
			for _, i := range some {
				queries = append(queries, query(flows[i]))
			}
			var verdicts []bool
			err := untilKnown(ctx, func() (err error) {
				verdicts, err = policy.AskVerdicts(ctx, st.adminSocket(node), queries)
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("node %s: %w", node, err)
			}
			for k, i := range some {
				out[i] = verdicts[k]
			}
		}
	}
	return out, nil
}

// noPolicies reports whether the nodes' agents know no policy, or there is no agent to ask.
func (st Status) noPolicies(ctx context.Context, nodes map[string][]int) (bool, error) {
	for node := range nodes {
		if node == "" {
			continue
		}
		var s policy.Summary
		ask := func() error { return policy.Ask(ctx, st.adminSocket(node), "summary", nil, &s) }
		if err := untilKnown(ctx, ask); err != nil {
			return false, fmt.Errorf("node %s: %w", node, err)
		}
		if !s.Known || len(s.Policies) > 0 {
			return false, nil
		}
	}
	return true, nil
}

func query(f reach.Flow) compiled.Query {
	q := compiled.Query{From: compiled.Party{Addr: f.Src}, To: compiled.Party{Addr: f.Dst.Addr()}, Port: f.Dst.Port()}
	switch f.Proto {
	case reach.TCP4, reach.TCP6:
		q.Protocol = model.TCP
	case reach.UDP4, reach.UDP6:
		q.Protocol = model.UDP
	}
	return q
}

// agentOf is the node whose agent knows best about an endpoint of reach; "" when no agent runs.
func (st Status) agentOf(endpoint string) string {
	home := endpoint
	for _, p := range st.Pods {
		if p.Namespace+"/"+p.Name == endpoint {
			home = p.Node
		}
	}
	for _, m := range st.Machines {
		if guestName(m) == endpoint {
			home = m.Node
		}
	}
	other := ""
	for _, n := range st.Nodes {
		if n.Agent != procRunning {
			continue
		}
		if n.Name == home {
			return home
		}
		if other == "" {
			other = n.Name
		}
	}
	return other
}

func (st Status) adminSocket(node string) string {
	return adminapi.InStateDir(Dir(st.Dir).Node(node, "agent"))
}

// untilKnown asks an agent that runs until it listens and knows the policies, which it does not at once when it has
// just started.
func untilKnown(ctx context.Context, ask func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := ask()
		var f *model.Fault
		again := errors.Is(err, adminapi.ErrNoServer) || errors.As(err, &f) && f.Code == model.CodeTryAgain
		if !again || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
	}
}
