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

// Summary is what an Enforcer says of itself.
type Summary struct {
	Node string `json:"node"`
	// Known: what policies say is known; until then the kernel stays as it was.
	Known      bool     `json:"known"`
	Interfaces int      `json:"interfaces"`
	Policies   []Known  `json:"policies"`
	Denied     []Denied `json:"denied,omitempty"`
}

// Known is a policy.
type Known struct {
	model.PolicyKey
	// Faults is what of it could not be understood.
	Faults string `json:"faults,omitempty"`
	// SelectsNoPods: no pod of the cluster is selected, so the policy has no effect.
	SelectsNoPods bool `json:"selectsNoPods,omitempty"`
}

// Denied are packets that were denied on this node, by which policies.
type Denied struct {
	By      string `json:"by"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Routes are what root may ask an Enforcer.
func (e *Enforcer) Routes() adminapi.Routes {
	return adminapi.Routes{
		"GET /summary": func(r *http.Request) (any, error) { return e.summary(r.Context()) },
		"GET /show": func(r *http.Request) (any, error) {
			q := r.URL.Query()
			return e.Show(model.PodRef{Namespace: q.Get("namespace"), Name: q.Get("name")})
		},
		"GET /why": func(r *http.Request) (any, error) {
			q := r.URL.Query()
			query := policy.Query{Network: q.Get("network"), Protocol: model.Protocol(q.Get("protocol"))}
			query.Port, query.PortName = port(q.Get("port"))
			var err error
			if query.From, err = party(q.Get("from")); err == nil {
				query.To, err = party(q.Get("to"))
			}
			if err != nil {
				return nil, err
			}
			return e.Why(query)
		},
		"POST /verdicts": func(r *http.Request) (any, error) {
			var queries []policy.Query
			if err := json.NewDecoder(io.LimitReader(r.Body, mostQueries)).Decode(&queries); err != nil {
				return nil, model.Faultf(model.CodeDecode, "", "queries: %w", err)
			}
			return e.Verdicts(queries)
		},
	}
}

// mostQueries bounds what is read of queries, in bytes.
const mostQueries = 16 << 20

// Verdicts says for each connection whether policies allow it, in all families that both ends have.
func (e *Enforcer) Verdicts(queries []policy.Query) ([]bool, error) {
	out := make([]bool, 0, len(queries))
	for _, q := range queries {
		answers, err := e.Why(q) // a lock for each: ADD does not wait for all of them
		if err != nil {
			return nil, err
		}
		out = append(out, !slices.ContainsFunc(answers, func(a policy.Answer) bool { return !a.Allowed }))
	}
	return out, nil
}

// party reads "namespace/name" or an address.
func party(s string) (policy.Party, error) {
	if namespace, name, ok := strings.Cut(s, "/"); ok && namespace != "" && name != "" {
		return policy.Party{Pod: model.PodRef{Namespace: namespace, Name: name}}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return policy.Party{}, model.Faultf(model.CodeInvalidConf, "write namespace/name or an address",
			"%q is no pod and no address", s)
	}
	return policy.Party{Addr: a}, nil
}

// port reads a port's number, or else its name; none is 0.
func port(s string) (number uint16, name string) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, s
	}
	return uint16(n), ""
}

// Show says what policies say of a pod.
func (e *Enforcer) Show(ref model.PodRef) (policy.View, error) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	if err := e.answerable(); err != nil {
		return policy.View{}, err
	}
	if len(e.desired.known) == 0 {
		return policy.View{Pod: ref, Interfaces: []policy.Interface{}, Note: noPolicy}, nil
	}
	return e.desired.index.Show(ref)
}

// Why says what decides about a connection.
func (e *Enforcer) Why(q policy.Query) ([]policy.Answer, error) {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	if err := e.answerable(); err != nil {
		return nil, err
	}
	if len(e.desired.known) == 0 {
		f := policy.Flow{Src: q.From.Addr, Dst: q.To.Addr, Protocol: q.Protocol, DstPort: q.Port}
		return []policy.Answer{{Flow: f, Allowed: true, Sides: []policy.Side{}, Note: noPolicy}}, nil
	}
	return e.desired.index.Why(q)
}

// noPolicy is the note of answers where there is no policy: pods are not followed then, so that nothing is known of
// them.
const noPolicy = "there is no network policy in the cluster"

// answerable tells whether enough is known to answer. The lock is held.
func (e *Enforcer) answerable() error {
	if !e.desired.ready() {
		return model.Faultf(model.CodeTryAgain, "ask again in a moment; look at the API server, and at the agent's log",
			"network policies are not known yet")
	}
	return nil
}

func (e *Enforcer) summary(ctx context.Context) (Summary, error) {
	counts, err := e.Counts(ctx)
	if err != nil {
		return Summary{}, err
	}
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	s := Summary{Node: e.cfg.Node, Known: e.desired.ready(), Interfaces: len(e.desired.local), Policies: []Known{}}
	for key, k := range e.desired.known {
		pods, compiled := e.desired.index.SelectedPods(key)
		s.Policies = append(s.Policies, Known{key, k.faults, s.Known && compiled && pods == 0})
	}
	slices.SortFunc(s.Policies, func(a, b Known) int { return a.Compare(b.PolicyKey) })
	for _, c := range counts {
		if by, ok := strings.CutPrefix(c.Comment, "deny "); ok {
			if i := slices.IndexFunc(s.Denied, func(d Denied) bool { return d.By == by }); i >= 0 { // at ports, too
				s.Denied[i].Packets, s.Denied[i].Bytes = s.Denied[i].Packets+c.Packets, s.Denied[i].Bytes+c.Bytes
				continue
			}
			s.Denied = append(s.Denied, Denied{by, c.Packets, c.Bytes})
		}
	}
	return s, nil
}
