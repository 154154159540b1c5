// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"sync"

	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/vm/node"
)

// sizes are how much is known of the cluster.
type sizes struct {
	// report, which may be nil, is called with each change.
	report func(nodes, pods int)

	mu          sync.Mutex
	nodes, pods int
}

func (s *sizes) setNodes(n int) { s.set(&s.nodes, n) }

func (s *sizes) setPods(n int) { s.set(&s.pods, n) }

func (s *sizes) set(which *int, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = n
	if s.report != nil {
		s.report(s.nodes, s.pods)
	}
}

// measureAgent adds what the ledger has, and whether new pods can be served.
func measureAgent(m *metrics.Metrics, l *ledger.Ledger, ready func() error, log *slog.Logger) {
	m.Gauge("weft_attachments", "Attachments in the ledger.", func() float64 {
		n, err := l.Len()
		if err != nil {
			log.Warn("attachments cannot be counted", "err", err)
		}
		return float64(n)
	})
	m.Gauge("weft_ready", "1 when new pods can be served, otherwise 0.", func() float64 {
		if ready() != nil {
			return 0
		}
		return 1
	})
}

// measureBlocks adds what the block engine has.
func measureBlocks(m *metrics.Metrics, e *blocks.Engine) {
	m.Gauge("weft_address_blocks", "Blocks of addresses that this node has.", func() float64 { return float64(e.Count().Blocks) })
	m.Gauge("weft_addresses_free", "Addresses of this node's blocks that can be given at once.", func() float64 { return float64(e.Count().Free) })
	m.Gauge("weft_addresses_held", "Addresses of pools that this node's attachments have.", func() float64 { return float64(e.Count().Held) })
}

// measurePolicies adds what the enforcer counts.
func measurePolicies(m *metrics.Metrics, p *policy.Enforcer) {
	m.Gauge("weft_policies", "Network policies that this node knows.", func() float64 { return float64(p.Stats().Policies) })
	m.Gauge("weft_policies_faulty", "Those of them that are not understood in full.", func() float64 { return float64(p.Stats().Faulty) })
	m.Gauge("weft_policy_known", "1 when everything is known that policies go by; 0: the kernel is as it was, and new pods wait.", func() float64 {
		if p.Known() {
			return 1
		}
		return 0
	})
	m.Gauge("weft_policy_transactions", "Changes of policies that were written into the kernel.", func() float64 { return float64(p.Stats().Transactions) })
	m.Gauge("weft_policy_repairs", "How often somebody else had changed the policies' table.", func() float64 { return float64(p.Stats().Meddled) })
	m.Gauge("weft_policy_closed_ports", "Ports of bridges, and macvtaps, that are closed because the policies of their guests cannot be written.", func() float64 { return float64(p.Stats().Barred) })
	m.Gauge("weft_policy_connections_cut", "Connections that were ended because a changed policy does not allow them.", func() float64 { return float64(p.Stats().Cut) })
	m.Gauges("weft_policy_denied_packets", "Packets that were denied on this node, by who denied them.", "by", p.Denied)
}

// measureMachines adds the virtual machines of this node.
func measureMachines(m *metrics.Metrics, machines *node.Machines) {
	m.Gauge("weft_vm_machines", "Virtual machines whose network is in pods of this node.", func() float64 {
		n, _ := machines.Count()
		return float64(n)
	})
	m.Gauge("weft_vm_networks", "Networks that virtual machines have in pods of this node.", func() float64 {
		_, n := machines.Count()
		return float64(n)
	})
}
