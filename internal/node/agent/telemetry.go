// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/node/cniserver"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/node/nodebgp"
	"github.com/weft-net/weft/internal/node/observer"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/readiness"
	"github.com/weft-net/weft/internal/vm/node"
)

// telemetry has the agent's metrics and readiness.
type telemetry struct {
	readiness *readiness.Readiness
	metrics   *metrics.Metrics // nil if they are not served
	web       net.Listener     // nil if metrics are not served
	known     sizes
	repairs   atomic.Uint64 // since the start
}

// listen creates the metrics, if they are served, and listens on the address.
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

// servesPods returns an error if new pods cannot be served.
func (t *telemetry) servesPods(l *ledger.Ledger) error {
	return errors.Join(t.readiness.Err(), l.Health())
}

// repaired returns the function that counts repairs.
func (t *telemetry) repaired() func([]string) {
	return func(things []string) {
		t.repairs.Add(uint64(len(things)))
		t.metrics.Repaired(things)
	}
}

func (t *telemetry) close() {
	if t.web != nil {
		_ = t.web.Close() // usually it is already closed
	}
}

// sizes are the numbers of nodes and pods.
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

// measureAgent registers metrics of the ledger and of the readiness.
func measureAgent(m *metrics.Metrics, l *ledger.Ledger, ready func() error, log *slog.Logger) {
	m.Gauge("weft_attachments", "Attachments in the ledger.", func() float64 {
		n, err := l.Len()
		if err != nil {
			log.Warn("attachments could not be counted", "err", err)
		}
		return float64(n)
	})
	m.Gauge("weft_ready", "1 if the agent can serve new pods, otherwise 0.", func() float64 {
		if ready() != nil {
			return 0
		}
		return 1
	})
}

// measureCNI registers metrics of the CNI server.
func measureCNI(m *metrics.Metrics, s *cniserver.Server) {
	m.Gauge("weft_cni_calls_in_progress", "Calls that the agent has accepted and not answered.",
		func() float64 { return float64(s.InProgress()) })
	m.Gauge("weft_cni_queued_dels", "DELs that weft-cni wrote to disk while the agent did not answer, and that are not done.",
		func() float64 { return float64(s.QueuedDELs()) })
}

// measureBlocks registers metrics of the block engine.
func measureBlocks(m *metrics.Metrics, e *blocks.Engine) {
	of := func(value func(blockreport.Counts) int) func() map[string]float64 {
		return func() map[string]float64 {
			out := map[string]float64{}
			for pool, c := range e.CountByPool() {
				out[pool] = float64(value(c))
			}
			return out
		}
	}
	m.Gauges("weft_ipam_blocks", "Blocks of the pool with affinity to this node.", "pool",
		of(func(c blockreport.Counts) int { return c.Blocks }))
	m.Gauges("weft_ipam_addresses_free", "Addresses of the pool in this node's blocks that can be allocated at once.", "pool",
		of(func(c blockreport.Counts) int { return c.Free }))
	m.Gauges("weft_ipam_addresses_allocated", "Addresses of the pool that are allocated to this node's attachments.", "pool",
		of(func(c blockreport.Counts) int { return c.Held }))
}

// measureFlows adds the metrics of the flows that the agent keeps.
func measureFlows(m *metrics.Metrics, o *observer.Observer) {
	m.Counters("weft_observe_lost_total",
		"Flows that were not kept because they were not read in time, with observe.level denied or flows.", "kind",
		func() map[string]float64 {
			lost := o.Lost()
			return map[string]float64{"new": float64(lost.New), "end": float64(lost.End), "drops": float64(lost.Drops)}
		})
}

// measurePolicies registers metrics of the enforcer.
func measurePolicies(m *metrics.Metrics, p *policy.Enforcer) {
	m.Gauge("weft_policies", "Network policies in the agent's cache.", func() float64 {
		return float64(p.Stats().Policies)
	})
	m.Gauge("weft_policies_invalid", "Network policies that the agent cannot enforce in full.", func() float64 {
		return float64(p.Stats().Faulty)
	})
	m.Gauge("weft_policy_synced",
		"1 if all policy inputs are synced; 0: the kernel keeps the last rules, and new pods wait.", func() float64 {
			if p.Known() {
				return 1
			}
			return 0
		})
	m.Counter("weft_policy_transactions_total", "Transactions that wrote policy rules to the kernel.", func() float64 {
		return float64(p.Stats().Transactions)
	})
	m.Counter("weft_policy_repairs_total", "External changes to the policy table that were repaired.", func() float64 {
		return float64(p.Stats().ExternalChanges)
	})
	m.Gauge(
		"weft_policy_quarantined_interfaces",
		"Bridge ports and macvtaps that are closed because the policies of their guests cannot be written.",
		func() float64 { return float64(p.Stats().Quarantined) },
	)
	m.Counter("weft_policy_connections_reset_total", "Connections that were ended because a changed policy denies them.",
		func() float64 { return float64(p.Stats().Cut) })
	m.Counters("weft_policy_denied_packets_total", "Packets denied on this node, by the kind of rule that denied them.", "rule", p.Denied)
}

// measureBGP registers metrics of the node's BGP sessions.
func measureBGP(m *metrics.Metrics, n *nodebgp.Node) {
	of := func(value func(nodebgp.Peer) uint64) func() map[string]float64 {
		return func() map[string]float64 {
			out := map[string]float64{}
			for _, p := range n.Peers() {
				out[p.Where()] = float64(value(p))
			}
			return out
		}
	}
	m.Gauge("weft_bgp_running", "1 if weft-bgp can be reached, otherwise 0.", func() float64 {
		if n.Running() {
			return 1
		}
		return 0
	})
	m.Gauges("weft_bgp_session_up", "1 if the session with the peer is established, otherwise 0.", "peer",
		of(func(p nodebgp.Peer) uint64 {
			if p.Up {
				return 1
			}
			return 0
		}))
	m.Counters("weft_bgp_sessions_lost_total", "Established sessions with the peer that were lost.", "peer",
		of(func(p nodebgp.Peer) uint64 { return p.Lost }))
	m.Gauges("weft_bgp_routes_received", "Routes that the peer announces.", "peer",
		of(func(p nodebgp.Peer) uint64 { return p.Received }))
	m.Gauges("weft_bgp_routes_accepted", "Routes of the peer that the rules of the node and its filters accept.", "peer",
		of(func(p nodebgp.Peer) uint64 { return p.Accepted }))
	m.Gauges("weft_bgp_routes_advertised", "Routes that the node announces to the peer.", "peer",
		of(func(p nodebgp.Peer) uint64 { return p.Advertised }))
}

// measureVMs registers metrics of the VMs on this node.
func measureVMs(m *metrics.Metrics, vms *node.Registry) {
	m.Gauge("weft_vms", "VMs whose network is in pods of this node.", func() float64 {
		n, _ := vms.Count()
		return float64(n)
	})
	m.Gauge("weft_vm_interfaces", "Interfaces of VMs in pods of this node.", func() float64 {
		_, n := vms.Count()
		return float64(n)
	})
}
