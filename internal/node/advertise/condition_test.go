// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/podnetwork"
)

// nodeServer is a server with one node.
type nodeServer struct {
	conditions string // JSON
	reads      int
	written    []string
	err        error
}

// nodeObjects are the objects of a nodeServer.
type nodeObjects struct {
	store.Objects

	s *nodeServer
}

func (s *nodeServer) Objects() store.Objects { return nodeObjects{s: s} }

func (o nodeObjects) Get(context.Context, store.Kind, store.Key) (store.Object, error) {
	o.s.reads++
	return store.NewObject(json.RawMessage(
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"conditions":` + o.s.conditions + `}}`))
}

func (s *nodeServer) PatchNode(_ context.Context, name string, n kube.NodeStatus) error {
	if s.err != nil {
		return s.err
	}
	c := n.Condition
	s.written = append(s.written, fmt.Sprint(name, " ", c.Unavailable, " ", c.Reason, " ", c.Transition))
	s.conditions = fmt.Sprintf(`[{"type":"NetworkUnavailable","status":%q,"reason":%q,"message":%q}]`,
		map[bool]string{true: "True", false: "False"}[c.Unavailable], c.Reason, c.Message)
	return nil
}

// kept is a condition that is kept on a nodeServer.
type kept struct {
	t      *testing.T
	server *nodeServer
	*Condition
	now   time.Time
	cause Cause
	known bool
}

func newKept(t *testing.T, mode config.Mode, conditions string) *kept {
	k := &kept{t: t, server: &nodeServer{conditions: conditions}, now: time.Unix(1e9, 0)}
	k.Condition = NewCondition(ConditionConfig{
		Node: "n1", Mode: mode, API: k.server, Cause: func() (Cause, bool) { return k.cause, k.known },
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return k.now },
	})
	return k
}

// after passes once after a time, with a cause, and expects writes.
func (k *kept) after(d time.Duration, reason string, want ...string) {
	k.t.Helper()
	k.now, k.cause = k.now.Add(d), Cause{Reason: reason, Message: "m"}
	if err := k.pass(k.t.Context()); err != nil {
		k.t.Error(err)
	}
	if got := strings.Join(k.server.written, ", "); got != strings.Join(want, ", ") {
		k.t.Errorf("at %s with %q wrote %q, want %q", k.now, reason, got, want)
	}
	k.server.written = nil
}

// TestCondition: the condition becomes True only after one cause has lasted, another cause is no transition, and it
// becomes False at once; what is not known changes nothing.
func TestCondition(t *testing.T) {
	k := newKept(t, config.ModeCluster, `[{"type":"Ready","status":"True"}]`)
	k.after(0, "")
	if k.server.reads > 0 {
		t.Error("the node is read before anything is known")
	}
	k.known = true
	k.after(time.Second, model.ReasonNoPodCIDR)
	k.after(conditionHold-time.Second, model.ReasonNoPodCIDR)
	k.after(time.Second, model.ReasonNotConfigured) // another cause: not for long enough
	k.after(conditionHold-time.Second, model.ReasonNotConfigured)
	k.after(time.Second, model.ReasonNotConfigured, "n1 true NetworkNotConfigured true")
	k.after(time.Second, model.ReasonNotConfigured)
	k.after(time.Second, model.ReasonMeshFailed)
	k.after(conditionHold, model.ReasonMeshFailed, "n1 true MeshFailed false")
	k.known = false
	k.after(time.Minute, "")
	k.known = true
	k.after(time.Second, "", "n1 false WeftIsUp true")
	k.after(time.Second, "")
	for range 5 { // a cause that comes and goes
		k.after(conditionHold-time.Second, model.ReasonMeshFailed)
		k.after(time.Second, "")
	}
	if k.server.reads != 1 {
		t.Errorf("the node was read %d times", k.server.reads)
	}
	k.server.conditions = `[]` // created again
	k.after(conditionReread, "", "n1 false WeftIsUp true")
}

// TestConditionOfOthers: a network that another program has said to be available is left so, and one that it said not
// to be available becomes so; a failed write is repeated.
func TestConditionOfOthers(t *testing.T) {
	k := newKept(t, config.ModeCluster, `[{"type":"NetworkUnavailable","status":"False","reason":"RouteCreated"}]`)
	k.known = true
	k.after(0, "")
	k = newKept(t, config.ModeFlannel, `[{"type":"NetworkUnavailable","status":"True","reason":"NoRouteCreated"}]`)
	k.known, k.server.err = true, errors.New("away")
	if err := k.pass(t.Context()); !errors.Is(err, k.server.err) {
		t.Error(err)
	}
	k.server.err = nil
	k.after(0, "", "n1 false FlannelIsUp true")
}

// TestCauseOf: the most specific cause counts, and one that is only not known is none.
func TestCauseOf(t *testing.T) {
	bad := errors.New("link flannel.1: operation not supported")
	for i, c := range []struct {
		own, configuration, mesh error
		reason                   string
		known                    bool
	}{
		{known: true},
		{fmt.Errorf("node n1 %w", podnetwork.ErrNoPrefix), bad, bad, "NoPodCIDR", true},
		{fmt.Errorf("there is %w", podnetwork.ErrNoPools), bad, nil, "NoAddressPool", true},
		{own: errors.New("the cluster's objects are not known yet"), configuration: bad},
		{mesh: bad, configuration: bad, reason: "MeshFailed", known: true},
		{configuration: bad, reason: "NetworkNotConfigured", known: true},
	} {
		got, known := CauseOf(c.own, c.configuration, c.mesh)
		if got.Reason != c.reason || known != c.known || (got.Message == "") != (c.reason == "") {
			t.Errorf("%d: %+v %t", i, got, known)
		}
	}
}
