// SPDX-License-Identifier: Apache-2.0

// Package tracer traces single packets on this node, in its namespace and in those of pods, for weft trace. Without a
// trace it has no rule and no socket.
package tracer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel/counters"
	"github.com/weft-net/weft/internal/kernel/drops"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/trace"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/inspect"
)

// The routes of the admin socket, all POST.
const (
	// RouteBegin begins a trace; the body is a Request.
	RouteBegin = "/trace/begin"
	// RouteSend sends the trace's probe; the body is a Request, of which Pod is the sender.
	RouteSend = "/trace/send"
	// RouteSeen returns the Progress of the trace.
	RouteSeen = "/trace/seen"
	// RouteEnd ends the trace, and returns its Result.
	RouteEnd = "/trace/end"
)

// Deadline is how long a trace lasts that is not ended.
const Deadline = 30 * time.Second

// maxBody is the size of a request in bytes.
const maxBody = 1 << 20

// Request is a probe, and where it is traced.
type Request struct {
	Probe trace.Probe `json:"probe"`
	// VXLANPort is the UDP port of tunnels in which the probe is looked for; 0: none.
	VXLANPort uint16 `json:"vxlanPort,omitempty"`
	// Pods are the pods (namespace/name) of this node in whose namespaces the probe is traced, besides the node's.
	Pods []string `json:"pods,omitempty"`
	// Pod is the sender; empty: the node.
	Pod string `json:"pod,omitempty"`
}

// Step is a step of the probe at a place.
type Step struct {
	trace.Seen
	// Pod is the pod in whose namespace it was seen; empty: the node's.
	Pod string `json:"pod,omitempty"`
	// Rule is the text of the rule that dropped the probe.
	Rule string `json:"rule,omitempty"`
}

// Progress is how much a running trace has seen.
type Progress struct {
	Steps int `json:"steps"`
}

// Drop is where the kernel dropped the probe or its answer, with or without a rule.
type Drop struct {
	drops.Drop
	// Pod is the pod in whose namespace it was; empty: the node's.
	Pod    string `json:"pod,omitempty"`
	Answer bool   `json:"answer,omitempty"`
	Tunnel bool   `json:"tunnel,omitempty"`
	Key    uint64 `json:"key,omitempty"`
}

// Counter is a counter of lost packets that rose during the trace, by whatever packets.
type Counter struct {
	counters.Counter
	// Pod is the pod in whose namespace it was; empty: the node's.
	Pod string `json:"pod,omitempty"`
}

// Result are the steps that were seen, by place, each in order.
type Result struct {
	Steps []Step `json:"steps"`
	Drops []Drop `json:"drops,omitempty"`
	// DropsError is why the kernel's drops were not seen.
	DropsError string    `json:"dropsError,omitempty"`
	Counters   []Counter `json:"counters,omitempty"`
	// Lost: some steps are missing.
	Lost bool `json:"lost,omitempty"`
}

// Tracer traces on this node, one trace at a time.
type Tracer struct {
	Records inspect.Records
	// Hold, which may be nil, makes all packets take the path on which they are traced, until release is called.
	Hold func() (release func())
	Log  *slog.Logger

	mu      sync.Mutex
	current *session // nil: no trace is running
}

// session is a running trace.
type session struct {
	probe  trace.Probe
	places []place
	// release ends the effect of Tracer.Hold; nil: there is none.
	release func()
	// stopped: the rules are deleted.
	stopped bool
	drops   *drops.Session // nil: dropsErr
	// dropsErr is what this kernel lacks to report drops.
	dropsErr error
	end      *time.Timer // ends it at the deadline
}

// place is a namespace in which a trace runs.
type place struct {
	pod   string
	ns    *netns.NS // nil: the node's
	trace *trace.Session
	// before are its counters at the beginning.
	before counters.Values
}

// Routes are its routes of the admin socket.
func (t *Tracer) Routes() adminapi.Routes {
	return adminapi.Routes{
		"POST " + RouteBegin: func(r *http.Request) (any, error) {
			q, err := decode(r)
			if err != nil {
				return nil, err
			}
			return struct{}{}, t.Begin(q)
		},
		"POST " + RouteSend: func(r *http.Request) (any, error) {
			q, err := decode(r)
			if err != nil {
				return nil, err
			}
			return struct{}{}, t.Send(q)
		},
		"POST " + RouteSeen: func(r *http.Request) (any, error) {
			q, err := decode(r)
			if err != nil {
				return nil, err
			}
			return t.Progress(q)
		},
		"POST " + RouteEnd: func(r *http.Request) (any, error) {
			q, err := decode(r)
			if err != nil {
				return nil, err
			}
			return t.End(r.Context(), q)
		},
	}
}

func decode(r *http.Request) (q Request, err error) {
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&q); err != nil {
		return q, model.Errorf(model.CodeDecode, "", "trace: %w", err)
	}
	if err := q.Probe.Check(); err != nil {
		return q, model.Errorf(model.CodeInvalidConf, "", "trace: %w", err)
	}
	return q, nil
}

// Close ends a trace that is running, at the end of the agent.
func (t *Tracer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.current
	if s == nil {
		return nil
	}
	t.current = nil
	s.end.Stop()
	return s.close()
}

// Begin begins a trace. It ends by itself at the Deadline.
func (t *Tracer) Begin(q Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		of := t.current.probe
		return model.Errorf(model.CodeTryAgain, fmt.Sprintf("it lasts %s at most", Deadline),
			"another trace is running on this node, from %s to %s", of.From.Addr(), of.To.Addr())
	}
	s := &session{probe: q.Probe}
	if t.Hold != nil {
		s.release = t.Hold()
	}
	for _, pod := range append([]string{""}, q.Pods...) {
		p, err := t.start(pod, q)
		if err != nil {
			return errors.Join(err, s.close())
		}
		s.places = append(s.places, p)
	}
	filter := drops.Filter{Addr: q.Probe.From.Addr(), TunnelPort: q.VXLANPort}
	s.drops, s.dropsErr = drops.Start(filter, func(packet []byte) bool {
		_, is := q.Probe.Recognize(packet, q.VXLANPort)
		return is
	})
	if s.dropsErr != nil {
		s.drops = nil
	}
	s.end = time.AfterFunc(Deadline, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.current == s {
			t.current = nil
			t.Log.Warn("trace was not ended; its rules are deleted", "component", "tracer", "err", s.close())
		}
	})
	t.current = s
	return nil
}

// start begins a trace at a place.
func (t *Tracer) start(pod string, q Request) (place, error) {
	ns, err := t.open(pod)
	if err != nil {
		return place{}, err
	}
	p := place{pod: pod, ns: ns}
	p.before, err = counters.Read(ns)
	if err == nil { // the session's own end, not the request's, ends it
		p.trace, err = trace.Start(context.Background(), ns, q.Probe.Matches(q.VXLANPort))
	}
	if err != nil {
		if ns != nil {
			err = errors.Join(err, ns.Close())
		}
		return place{}, err
	}
	return p, nil
}

// open opens the namespace of a pod; nil is the node's.
func (t *Tracer) open(pod string) (*netns.NS, error) {
	if pod == "" {
		return nil, nil
	}
	return inspect.OpenPod(t.Records, pod)
}

// stop deletes the rules.
func (s *session) stop() error {
	if s.stopped {
		return nil
	}
	s.stopped = true
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.trace.Close())
	}
	return errors.Join(errs...)
}

func (s *session) close() error {
	errs := []error{s.stop()}
	if s.release != nil {
		s.release()
	}
	if s.drops != nil {
		errs = append(errs, s.drops.Close())
	}
	for _, p := range s.places {
		if p.ns != nil {
			errs = append(errs, p.ns.Close())
		}
	}
	return errors.Join(errs...)
}

// Send sends the probe.
func (t *Tracer) Send(q Request) error {
	if q.Probe.Live {
		return model.Errorf(model.CodeInvalidConf, "", "trace: a live trace sends nothing")
	}
	ns, err := t.open(q.Pod)
	if err != nil {
		return err
	}
	err = q.Probe.Send(ns)
	if ns != nil {
		err = errors.Join(err, ns.Close())
	}
	return err
}

// running returns the trace of a probe, under the lock.
func (t *Tracer) running(q Request) (*session, error) {
	if s := t.current; s != nil && s.probe.Cookie == q.Probe.Cookie {
		return s, nil
	}
	return nil, model.Errorf(model.CodeNotAvailable, fmt.Sprintf("a trace lasts %s at most", Deadline),
		"this trace is not running")
}

// Progress returns how much the trace of a probe has seen.
func (t *Tracer) Progress(q Request) (out Progress, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.running(q)
	if err != nil {
		return out, err
	}
	for _, p := range s.places {
		seen, _ := p.trace.Seen()
		out.Steps += len(seen)
	}
	return out, nil
}

// End ends the trace of a probe, and returns what was seen.
func (t *Tracer) End(ctx context.Context, q Request) (Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.running(q)
	if err != nil {
		return Result{}, err
	}
	t.current = nil
	s.end.Stop()
	out := Result{Steps: []Step{}}
	errs := []error{s.stop()}
	for _, p := range s.places {
		seen, lost := p.trace.Seen()
		out.Lost = out.Lost || lost
		for _, e := range seen {
			step := Step{Seen: e, Pod: p.pod}
			if e.Verdict == "drop" && e.Handle != 0 {
				var err error
				step.Rule, err = ruleText(ctx, p.ns, e)
				errs = append(errs, err)
			}
			out.Steps = append(out.Steps, step)
		}
		after, err := counters.Read(p.ns)
		errs = append(errs, err)
		for _, c := range after.Risen(p.before) {
			out.Counters = append(out.Counters, Counter{c, p.pod})
		}
	}
	errs = append(errs, s.addDrops(&out, q))
	return out, errors.Join(append(errs, s.close())...)
}

// addDrops adds the drops of the probe and its answer.
func (s *session) addDrops(out *Result, q Request) error {
	if s.drops == nil {
		out.DropsError = s.dropsErr.Error()
		return nil
	}
	seen, lost, err := s.drops.Seen()
	out.Lost = out.Lost || lost
	for _, d := range seen {
		r, _ := q.Probe.Recognize(d.Packet, q.VXLANPort)
		// The program sees all namespaces of the host, in a lab those of all nodes.
		for _, p := range s.places {
			id, e := p.id()
			err = errors.Join(err, e)
			if id == d.Namespace {
				out.Drops = append(out.Drops, Drop{Drop: d, Pod: p.pod, Answer: r.Answer, Tunnel: r.Tunnel, Key: r.Key})
				break
			}
		}
	}
	return err
}

// id returns the inode of the place's namespace.
func (p place) id() (uint64, error) {
	if p.ns != nil {
		return p.ns.ID()
	}
	own, err := netns.Current()
	if err != nil {
		return 0, err
	}
	id, err := own.ID()
	return id, errors.Join(err, own.Close())
}

// ruleText returns the text of a rule, as far as it can be read.
func ruleText(ctx context.Context, ns *netns.NS, e trace.Seen) (text string, err error) {
	f := netfilter.New(ns)
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := f.Netfilter()
	if err != nil {
		return "", err
	}
	rules, err := n.RulesOf(ctx, nft.Place{Family: e.Family, Table: e.Table, Chain: e.Chain})
	if err != nil {
		return "", err
	}
	for _, r := range rules {
		if r.Handle == e.Handle {
			return r.Text, nil
		}
	}
	return "", nil // it has been deleted
}
