// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// maxVerdicts is the maximum number of flows in one query to an agent.
const maxVerdicts = 2000

// expect returns a function that evaluates the lab's network policies for flows in a network; "" is the cluster's.
func (st Status) expect(network string) func(context.Context, []connectivity.Flow) ([]bool, error) {
	return func(ctx context.Context, flows []connectivity.Flow) ([]bool, error) {
		return st.verdicts(ctx, network, flows)
	}
}

// verdicts queries the agent of each flow's target node. For a dead agent, whose rules remain in the kernel, another agent
// evaluates the policies; without any agent, all flows are expected to be allowed.
func (st Status) verdicts(ctx context.Context, network string, flows []connectivity.Flow) ([]bool, error) {
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
			batch := indexes[:min(len(indexes), maxVerdicts)]
			indexes = indexes[len(batch):]
			queries := make([]compiled.Query, 0, len(batch))
			for _, i := range batch {
				queries = append(queries, query(network, flows[i]))
			}
			var verdicts []bool
			err := retryUntilSynced(ctx, func() (err error) {
				verdicts, err = policy.RequestVerdicts(ctx, st.adminSocket(node), queries)
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("node %s: %w", node, err)
			}
			for k, i := range batch {
				out[i] = verdicts[k]
			}
		}
	}
	return out, nil
}

// noPolicies reports whether there are no policies, or no agent is running.
func (st Status) noPolicies(ctx context.Context, nodes map[string][]int) (bool, error) {
	for node := range nodes {
		if node == "" {
			continue
		}
		var s policy.Summary
		get := func() error { return policy.Request(ctx, st.adminSocket(node), "summary", nil, &s) }
		if err := retryUntilSynced(ctx, get); err != nil {
			return false, fmt.Errorf("node %s: %w", node, err)
		}
		if !s.Known || len(s.Policies) > 0 {
			return false, nil
		}
	}
	return true, nil
}

func query(network string, f connectivity.Flow) compiled.Query {
	q := compiled.Query{
		From: compiled.ConnectionEnd{
			Addr: f.Src,
		},
		To:      compiled.ConnectionEnd{Addr: f.Dst.Addr()},
		Network: network,
		Port:    f.Dst.Port(),
	}
	switch f.Proto {
	case connectivity.TCP4, connectivity.TCP6:
		q.Protocol = model.TCP
	case connectivity.UDP4, connectivity.UDP6:
		q.Protocol = model.UDP
	}
	return q
}

// agentOf returns the node of an endpoint if its agent is running, else another node with a running agent, or "".
func (st Status) agentOf(endpoint string) string {
	home := endpoint
	for _, p := range st.Pods {
		if p.Namespace+"/"+p.Name == endpoint {
			home = p.Node
		}
	}
	for _, m := range st.VMs {
		if endpointName(m) == endpoint {
			home = m.Node
		}
	}
	other := ""
	for _, n := range st.Nodes {
		if n.Agent != Running {
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

// retryUntilSynced retries a query while the agent does not listen or has not synced its policies, right after its start.
func retryUntilSynced(ctx context.Context, query func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := query()
		var f *model.Error
		again := errors.Is(err, adminapi.ErrNoServer) || errors.As(err, &f) && f.Code == model.CodeTryAgain
		if !again || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
	}
}
