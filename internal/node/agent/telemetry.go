// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"log/slog"
	"net"
	"sync"

	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/readiness"
	"github.com/weft-net/weft/internal/vm/node"
)

// telemetry is what the agent says of itself to those who watch it.
type telemetry struct {
	readiness *readiness.Readiness
	metrics   *metrics.Metrics // nil when nobody may ask
	web       net.Listener     // as metrics
	known     sizes
}

// listen makes the metrics, where somebody may ask for them, and takes the address.
func (t *telemetry) listen(cfg Config, l *ledger.Ledger) (err error) {
	if cfg.Metrics.Address == "" {
		return nil
	}
	if t.web, err = metrics.Listen(cfg.Metrics.Address); err != nil {
		return err
	}
	t.metrics = metrics.New(cfg.Version)
	measureAgent(t.metrics, l, func() error { return t.servesPods(l) }, cfg.Log)
	return nil
}

// servesPods is an error when new pods cannot be served.
func (t *telemetry) servesPods(l *ledger.Ledger) error {
	return errors.Join(t.readiness.Err(), l.Health())
}

// repaired counts repairs, where metrics are served.
func (t *telemetry) repaired() func([]string) {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.Repaired
}

func (t *telemetry) close() {
	if t.web != nil {
		_ = t.web.Close() // most often it is closed
	}
}

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
	m.Gauge("weft_address_blocks", "Blocks of addresses that this node has.", func() float64 {
		return float64(e.Count().Blocks)
	})
	m.Gauge("weft_addresses_free", "Addresses of this node's blocks that can be given at once.", func() float64 {
		return float64(e.Count().Free)
	})
	m.Gauge("weft_addresses_held", "Addresses of pools that this node's attachments have.", func() float64 {
		return float64(e.Count().Held)
	})
}

// measurePolicies adds what the enforcer counts.
func measurePolicies(m *metrics.Metrics, p *policy.Enforcer) {
	m.Gauge("weft_policies", "Network policies that this node knows.", func() float64 {
		return float64(p.Stats().Policies)
	})
	m.Gauge("weft_policies_faulty", "Those of them that are not understood in full.", func() float64 {
		return float64(p.Stats().Faulty)
	})
	m.Gauge("weft_policy_known",
		"1 when everything is known that policies go by; 0: the kernel is as it was, and new pods wait.", func() float64 {
			if p.Known() {
				return 1
			}
			return 0
		})
	m.Gauge("weft_policy_transactions", "Changes of policies that were written into the kernel.", func() float64 {
		return float64(p.Stats().Transactions)
	})
	m.Gauge("weft_policy_repairs", "How often somebody else had changed the policies' table.", func() float64 {
		return float64(p.Stats().Meddled)
	})
	m.Gauge(
		"weft_policy_closed_ports",
		"Ports of bridges, and macvtaps, that are closed because the policies of their guests cannot be written.",
		func() float64 { return float64(p.Stats().Barred) },
	)
	m.Gauge("weft_policy_connections_cut", "Connections that were ended because a changed policy does not allow them.",
		func() float64 { return float64(p.Stats().Cut) })
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
