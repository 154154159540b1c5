// SPDX-License-Identifier: Apache-2.0

// Package explainer answers the questions of weft explain about this node: from the kernel, in the node's namespace and
// those of its pods, and from the agent's own parts. It changes nothing.
package explainer

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel/lookup"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/inspect"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/plan/policy"
)

// The routes of the admin socket.
const (
	// RouteFacts (GET) returns the explain.Node of this node; with QuerySummary, its Summary.
	RouteFacts = "/explain/facts"
	// QuerySummary is a parameter of RouteFacts. Agents that do not know it return all facts.
	QuerySummary = "summary"
	// RouteAnswers (POST) answers a list of explain.Question with explain.Answers.
	RouteAnswers = "/explain/answers"
	// RouteRecord (GET) returns the facts and the last answers, an explain.Record.
	RouteRecord = "/explain/record"
)

// Limits of a request.
const (
	maxQuestions = 1000
	maxBody      = 4 << 20 // bytes
)

// Policies decide about connections.
type Policies interface {
	Why(policy.Query) ([]policy.Answer, error)
	// DecidesAtHosts reports whether they do at interfaces of this node, or may. AtHost returns what they decide there.
	DecidesAtHosts() bool
	AtHost(policy.HostPacket) ([]policy.Side, error)
}

// Config is what an Explainer asks.
type Config struct {
	Node    string
	Records inspect.Records
	// VMs are the records of VMs in pods; nil: there are none.
	VMs inspect.Records
	// Policies is nil if this agent enforces none.
	Policies Policies
	// Topology returns the mesh that is in force; nil: there is none.
	Topology func() (mesh.Topology, error)
	// Root is the root directory of the host, for its iptables programs.
	Root string
	// Now is the clock.
	Now func() time.Time
}

// Explainer answers questions.
type Explainer struct {
	cfg      Config
	recorder recorder
}

// New creates an Explainer.
func New(c Config) *Explainer { return &Explainer{cfg: c} }

// now returns the time for a record.
func (e *Explainer) now() string { return e.cfg.Now().UTC().Format(explain.TimeLayout) }

// Routes are its routes of the admin socket.
func (e *Explainer) Routes() adminapi.Routes {
	return adminapi.Routes{
		"GET " + RouteFacts: func(r *http.Request) (any, error) {
			facts, err := e.Facts(r.Context())
			if r.URL.Query().Get(QuerySummary) != "" {
				facts = facts.Summary()
			}
			return facts, err
		},
		"POST " + RouteAnswers: func(r *http.Request) (any, error) {
			var questions []explain.Question
			if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&questions); err != nil {
				return nil, model.Errorf(model.CodeDecode, "", "questions: %w", err)
			}
			if len(questions) > maxQuestions {
				return nil, model.OutOfRange("number of questions", len(questions), "at most 1000", maxQuestions)
			}
			answers := e.Answers(r.Context(), questions)
			e.recorder.add(answers, e.now())
			return answers, nil
		},
		"GET " + RouteRecord: func(r *http.Request) (any, error) {
			facts, err := e.Facts(r.Context())
			facts.Time = e.now()
			return explain.Record{Node: facts, Answers: e.recorder.answers()}, err
		},
	}
}

// Facts returns the facts about this node.
func (e *Explainer) Facts(ctx context.Context) (explain.Node, error) {
	out := explain.Node{Name: e.cfg.Node, Policy: e.cfg.Policies != nil, Pods: []explain.Pod{}}
	out.Hosts = out.Policy && e.cfg.Policies.DecidesAtHosts()
	records, err := e.cfg.Records.List()
	if err != nil {
		return out, err
	}
	guests, err := e.guests(records)
	if err != nil {
		return out, err
	}
	pods, stay := map[string]int{}, map[string]bool{}
	for _, rec := range records {
		if end, ok := rec.Endpoint(); ok && rec.Stage != attach.Releasing {
			stay[end.Pod.String()] = true
		}
	}
	for _, rec := range records {
		end, ok := rec.Endpoint()
		if !ok {
			continue
		}
		name := end.Pod.String()
		if rec.Stage == attach.Releasing && stay[name] { // of a network that was unplugged, or of another pod of that name
			continue
		}
		i, known := pods[name]
		if !known {
			i = len(out.Pods)
			pods[name] = i
			out.Pods = append(out.Pods, explain.Pod{Name: name, Stage: string(rec.Stage)})
		}
		if rec.Stage != attach.Done { // of several attachments one that is not finished counts
			out.Pods[i].Stage = string(rec.Stage)
		}
		if rec.Standby || len(end.Addrs) == 0 {
			continue
		}
		out.Pods[i].HostPorts = append(out.Pods[i].HostPorts, hostPorts(rec.Network)...)
		for _, p := range rec.PublishedPorts() {
			out.Pods[i].HostPorts = append(out.Pods[i].HostPorts, explain.HostPort{
				Protocol: model.Protocol(strings.ToUpper(p.Protocol)), Port: p.HostPort, To: p.ContainerPort, Addr: p.HostIP,
			})
		}
		guest := guests[podLink{rec.Request.ContainerID, end.IfName}]
		iface := explain.Interface{
			Name: end.IfName, Network: end.Network, HostLink: end.HostLink, VM: end.VM || end.Tap,
			Tap: guest.tap, TapOnNode: guest.onNode, Joined: guest.join != nil, Leases: guest.leases, LeaseLink: guest.leaseLink,
		}
		for _, a := range end.Addrs {
			iface.Addrs = append(iface.Addrs, netip.PrefixFrom(a, a.BitLen()))
		}
		out.Pods[i].Interfaces = append(out.Pods[i].Interfaces, iface)
	}
	if out.Addrs, err = hostAddrs(ctx); err != nil {
		return out, err
	}
	if e.cfg.Topology != nil {
		t, err := e.cfg.Topology()
		if err != nil && t.Self == "" {
			return out, err
		}
		out.Peers = peers(t)
		// The addresses by which the other nodes know this one come first.
		for _, u := range slices.Backward(t.Underlay) {
			if i := slices.Index(out.Addrs, u.Address); i > 0 {
				out.Addrs = slices.Insert(slices.Delete(out.Addrs, i, i+1), 0, u.Address)
			}
		}
	}
	return out, nil
}

// hostPorts returns the ports of the node that lead to a pod: the capability portMappings of its attachment. What cannot be
// read was not mapped either.
func hostPorts(n model.Network) (out []explain.HostPort) {
	for _, p := range n.Plugins {
		var conf struct {
			RuntimeConfig struct {
				PortMappings []struct {
					HostPort, ContainerPort uint16
					Protocol, HostIP        string
				}
			}
		}
		if json.Unmarshal(p.Raw, &conf) != nil {
			continue
		}
		for _, m := range conf.RuntimeConfig.PortMappings {
			addr, _ := netip.ParseAddr(m.HostIP)
			mapped := explain.HostPort{
				Protocol: model.Protocol(strings.ToUpper(m.Protocol)), Port: m.HostPort, To: m.ContainerPort, Addr: addr,
			}
			if m.HostPort != 0 && !slices.Contains(out, mapped) {
				out = append(out, mapped)
			}
		}
	}
	return out
}

// hostAddrs returns the node's own addresses.
func hostAddrs(ctx context.Context) (out []netip.Addr, err error) {
	host, err := lookup.Open(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	return host.Addrs(ctx)
}

// peers returns the paths to the other nodes.
func peers(t mesh.Topology) []explain.Peer {
	out := make([]explain.Peer, 0, len(t.Peers))
	for _, p := range t.Peers {
		peer := explain.Peer{Name: p.Name}
		for _, w := range t.PeerPaths(p) {
			path := explain.Path{CIDR: w.CIDR, Link: w.Link, Gateway: w.Gateway, Tunnel: w.Tunnel, Far: w.Far, Learned: w.Learned}
			if w.Learned {
				path.Far = netip.Addr{} // the gateway may be a router
			}
			peer.Paths = append(peer.Paths, path)
		}
		out = append(out, peer)
	}
	return out
}

// Answers answers questions. One that cannot be answered has the error.
func (e *Explainer) Answers(ctx context.Context, questions []explain.Question) explain.Answers {
	out := explain.Answers{}
	places := map[string]*place{}
	defer func() {
		for _, p := range places {
			p.close()
		}
	}()
	for _, q := range questions {
		if q.Node != e.cfg.Node {
			out[q] = explain.Answer{Error: "this is node " + e.cfg.Node}
			continue
		}
		p, opened := places[q.Pod]
		if !opened {
			p = e.open(q.Pod)
			places[q.Pod] = p
		}
		a, err := e.answer(ctx, p, q)
		if err != nil {
			a = explain.Answer{Error: err.Error()}
		}
		out[q] = a
	}
	return out
}

// open opens the namespace of a pod, or the node's.
func (e *Explainer) open(pod string) *place {
	if pod == "" {
		return newPlace(nil, e.cfg.Root)
	}
	ns, err := inspect.OpenPod(e.cfg.Records, pod)
	if err != nil {
		return &place{err: err}
	}
	return newPlace(ns, e.cfg.Root)
}
