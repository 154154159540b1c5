// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"os"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// tracked are the settings by which bridges show their packets to the hooks of IP, which track connections.
func tracked() []string {
	return []string{"/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"}
}

// tracksPorts tells whether what passes the node's bridges can be judged there. Without that a guest that has its pod's wire is
// not judged, which is said once. The lock is held.
func (e *Enforcer) tracksPorts() bool {
	for _, path := range tracked() {
		if b, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(b)) != "1" {
			if !e.blind {
				e.log.Error("network policies do not hold for guests that are on a bridge of the node: load br_netfilter and set it to 1", "setting", path)
			}
			e.blind = true
			return false
		}
	}
	return true
}

// putPorts makes the table of the node's bridges that of tables. That it cannot be is no obstacle to who is not at a port. The
// lock is held.
func (e *Enforcer) putPorts(ctx context.Context, tables map[policy.Place]state.Table) {
	p := policy.Place{Ports: true}
	e.bridges = put(ctx, e.cfg.Host, tables, p)
	if _, needed := tables[p]; e.bridges != nil && !needed && !e.hasPorts() {
		e.bridges = nil // a kernel that cannot have it has none
	}
	if e.bridges != nil {
		e.stats.Failures++
		e.log.Error("policies of the node's bridges cannot be written; it is tried again", "err", e.bridges)
	}
}

// hasPorts tells whether some interface is judged at a port. The lock is held.
func (e *Enforcer) hasPorts() bool {
	for _, l := range e.local {
		if l.endpoint.Point == model.PointPort {
			return true
		}
	}
	return false
}

// bare are the tables of a place by their names.
func bare(p policy.Place) []state.Table {
	out := []state.Table{{Family: p.Family(), Name: policy.TableName}}
	for _, t := range p.Beside() {
		out = append(out, state.Table{Family: t.Family, Name: t.Name})
	}
	return out
}
