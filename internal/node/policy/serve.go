// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/plan/policy"
)

// Summary is the state of an Enforcer.
type Summary struct {
	Node string `json:"node"`
	// Known reports that all policy inputs are synced; until then the kernel's tables are not changed.
	Known      bool    `json:"known"`
	Interfaces int     `json:"interfaces"`
	Policies   []Known `json:"policies"`
	// HostEndpoints are those of this node, and objects whose node cannot be read.
	HostEndpoints []policy.HostEndpointView `json:"hostEndpoints,omitempty"`
	Denied        []Denied                  `json:"denied,omitempty"`
}

// Known is a policy.
type Known struct {
	model.PolicyKey
	// Unsupported are the unsupported parts.
	Unsupported string `json:"faults,omitempty"`
	// SelectsNoPods: no pod of the cluster is selected, so the policy has no effect.
	SelectsNoPods bool `json:"selectsNoPods,omitempty"`
}

// Denied are packets that were denied on this node, by policy.
type Denied struct {
	By      string `json:"by"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Routes returns the admin routes of an Enforcer.
func (e *Enforcer) Routes() adminapi.Routes {
	return adminapi.Routes{
		"GET /summary": func(r *http.Request) (any, error) { return e.Summary(r.Context()) },
		"GET /show": func(r *http.Request) (any, error) {
			q := r.URL.Query()
			return e.Show(model.PodRef{Namespace: q.Get("namespace"), Name: q.Get("name")})
		},
		"GET /why": func(r *http.Request) (any, error) {
			q := r.URL.Query()
			query := policy.Query{Network: q.Get("network"), Protocol: model.Protocol(q.Get("protocol"))}
			query.Port, query.PortName = port(q.Get("port"))
			var err error
			if query.From, err = connectionEnd(q.Get("from")); err == nil {
				query.To, err = connectionEnd(q.Get("to"))
			}
			if err != nil {
				return nil, err
			}
			return e.Why(query)
		},
		"POST /verdicts": func(r *http.Request) (any, error) {
			var queries []policy.Query
			if err := json.NewDecoder(io.LimitReader(r.Body, mostQueries)).Decode(&queries); err != nil {
				return nil, model.Errorf(model.CodeDecode, "", "queries: %w", err)
			}
			return e.Verdicts(queries)
		},
	}
}

// mostQueries limits the size of queries, in bytes.
const mostQueries = 16 << 20

// Verdicts reports for each connection whether policies allow it, in all families that both ends have.
func (e *Enforcer) Verdicts(queries []policy.Query) ([]bool, error) {
	out := make([]bool, 0, len(queries))
	for _, q := range queries {
		answers, err := e.Why(q) // locks for each query, so that an ADD does not wait for all
		if err != nil {
			return nil, err
		}
		out = append(out, !slices.ContainsFunc(answers, func(a policy.Answer) bool { return !a.Allowed }))
	}
	return out, nil
}

// connectionEnd parses "namespace/name" or an address.
func connectionEnd(s string) (policy.ConnectionEnd, error) {
	if namespace, name, ok := strings.Cut(s, "/"); ok && namespace != "" && name != "" {
		return policy.ConnectionEnd{Pod: model.PodRef{Namespace: namespace, Name: name}}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return policy.ConnectionEnd{}, model.Errorf(model.CodeInvalidConf, "write namespace/name or an address",
			"%q is neither a pod nor an address", s)
	}
	return policy.ConnectionEnd{Addr: a}, nil
}

// port parses a port's number or name; empty is 0.
func port(s string) (number uint16, name string) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, s
	}
	return uint16(n), ""
}

// Show returns the policies of a pod.
func (e *Enforcer) Show(ref model.PodRef) (policy.View, error) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	if err := e.answerableLocked(); err != nil {
		return policy.View{}, err
	}
	if len(e.desired.known) == 0 {
		return policy.View{Pod: ref, Interfaces: []policy.Interface{}, Note: noPolicy}, nil
	}
	return e.desired.index.Show(ref)
}

// Why returns what decides about a connection.
func (e *Enforcer) Why(q policy.Query) ([]policy.Answer, error) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	if err := e.answerableLocked(); err != nil {
		return nil, err
	}
	if !e.desired.anyLocked() {
		f := policy.Flow{Src: q.From.Addr, Dst: q.To.Addr, Protocol: q.Protocol, DstPort: q.Port}
		return []policy.Answer{{Flow: f, Allowed: true, Sides: []policy.Side{}, Note: noPolicy}}, nil
	}
	return e.desired.index.Why(q)
}

// AtHost returns what this node's host endpoints decide about a packet.
func (e *Enforcer) AtHost(p policy.HostPacket) ([]policy.Side, error) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	if err := e.answerableLocked(); err != nil {
		return nil, err
	}
	return e.desired.index.Calico().AtHost(p), nil
}

// DecidesAtHosts reports whether host endpoints of this node decide about packets, or may: policies are not synced yet.
func (e *Enforcer) DecidesAtHosts() bool {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	return e.answerableLocked() != nil || e.desired.index.Calico().DecideAtHosts()
}

// noPolicy is the note of answers without a policy: the peers are not watched then.
const noPolicy = "there is no network policy in the cluster"

// answerableLocked returns an error if policies are not synced.
func (e *Enforcer) answerableLocked() error {
	if !e.desired.readyLocked() {
		return model.Errorf(model.CodeTryAgain, "try again in a moment; check the API server and the agent's log",
			"network policies are not known yet")
	}
	return nil
}

// Summary returns all policies, and the packets that they denied on this node.
func (e *Enforcer) Summary(ctx context.Context) (Summary, error) {
	counts, err := e.Counts(ctx)
	if err != nil {
		return Summary{}, err
	}
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	s := Summary{Node: e.cfg.Node, Known: e.desired.readyLocked(), Interfaces: len(e.desired.local), Policies: []Known{}}
	for key, k := range e.desired.known {
		pods, compiled := e.desired.index.SelectedPods(key)
		s.Policies = append(s.Policies, Known{key, k.unsupported, s.Known && compiled && pods == 0 && !e.desired.index.Calico().SelectsHosts(key)})
	}
	slices.SortFunc(s.Policies, func(a, b Known) int { return a.Compare(b.PolicyKey) })
	s.HostEndpoints = e.desired.hostEndpointsLocked()
	for _, c := range counts {
		if by, ok := strings.CutPrefix(c.Comment, "deny "); ok {
			if i := slices.IndexFunc(
				s.Denied,
				func(d Denied) bool { return d.By == by },
			); i >= 0 { // it may also be counted at ports
				s.Denied[i].Packets, s.Denied[i].Bytes = s.Denied[i].Packets+c.Packets, s.Denied[i].Bytes+c.Bytes
				continue
			}
			s.Denied = append(s.Denied, Denied{by, c.Packets, c.Bytes})
		}
	}
	return s, nil
}
