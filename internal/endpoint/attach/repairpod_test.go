// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// repairNode is a node whose clock can be set forward.
type repairNode struct {
	*node
	ahead  atomic.Int64
	events atomic.Int64
	counts atomic.Int64
}

func newRepairNode(t *testing.T, routed bool) *repairNode {
	t.Helper()
	r := &repairNode{}
	if r.node = newNode(t); routed {
		r.node = routedNode(t)
	}
	r.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }
	r.cfg.Event = func(model.PodRef, model.Event) { r.events.Add(1) }
	r.cfg.Repaired = func(things []string) { r.counts.Add(int64(len(things))) }
	r.Attacher = attach.New(r.cfg)
	return r
}

// pass sets the clock forward by more than the time within which the same drift is the pod's will.
func (r *repairNode) pass() { r.ahead.Add(int64(11 * time.Minute)) }

// reconcile runs the reconciler until the test ends.
func (r *repairNode) reconcile(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Reconcile(ctx, attach.ReconcileConfig{After: time.After}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// network is all of a node's and a pod's network, but for what changes by itself.
func network(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var out strings.Builder
	index, link6 := regexp.MustCompile(`@if[0-9]+`), regexp.MustCompile(` fe80::[0-9a-f:]+/64`)
	for _, ns := range []*netns.NS{nil, ns} {
		for _, what := range []string{
			"-br link", "-br addr", "route show table all", "-6 route show table all", "neigh show nud permanent", "rule",
		} {
			var lines []string
			for line := range strings.Lines(nettest.Run(t, ns, append([]string{"ip"}, strings.Fields(what)...)...)) {
				line = strings.Join(strings.Fields(line), " ") + "\n"
				if !strings.Contains(line, "proto kernel") {
					lines = append(lines, index.ReplaceAllString(link6.ReplaceAllString(line, ""), ""))
				}
			}
			slices.Sort(lines)
			out.WriteString(strings.Join(lines, ""))
		}
		out.WriteString(nettest.Run(t, ns, "nft", "-s", "list", "ruleset"))
	}
	return out.String()
}

// settled waits until the network is as it was.
func settled(t *testing.T, what, before string, ns *netns.NS) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		d := cmp.Diff(before, network(t, ns))
		if d == "" {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s: not repaired (-before +now):\n%s", what, d)
		}
	}
}

// drift is a way to take something from an attachment: commands on the node and in the pod. HOST is the node's end,
// POD4 the address.
type drift struct{ name, node, pod string }

func (d drift) apply(t *testing.T, host, addr string, ns *netns.NS) {
	t.Helper()
	for _, at := range []struct {
		commands string
		ns       *netns.NS
	}{{d.node, nil}, {d.pod, ns}} {
		for command := range strings.SplitSeq(at.commands, ";") {
			if command = strings.TrimSpace(command); command != "" {
				nettest.Run(t, at.ns, strings.Fields(strings.NewReplacer("HOST", host, "POD4", addr).Replace(command))...)
			}
		}
	}
}

func routedDrifts() []drift {
	return []drift{
		{name: "routes flushed by protocol", node: "ip route flush proto 119; ip -6 route flush proto 119"},
		{name: "node's end down and up", node: "ip link set HOST down; ip link set HOST up"},
		{name: "node's end down", node: "ip link set HOST down"},
		{name: "neighbor deleted", node: "ip neigh del POD4 dev HOST"},
		{name: "neighbor overwritten", node: "ip neigh replace POD4 lladdr 02:00:00:00:00:09 dev HOST nud permanent"},
		{name: "route replaced", node: "ip route replace POD4/32 dev lo proto 119"},
		{name: "MTU of the node's end", node: "ip link set HOST mtu 1300"},
		{name: "rules flushed", node: "nft flush ruleset"},
		{name: "elements of the source guard", node: "nft flush set inet weft_source own4"},
		{name: "pair deleted", node: "ip link del HOST"},
		{name: "address in the pod", pod: "ip addr del POD4/32 dev eth0"},
		{name: "link in the pod down", pod: "ip link set eth0 down"},
		{name: "link in the pod down and up", pod: "ip link set eth0 down; ip link set eth0 up"},
		{name: "default route in the pod", pod: "ip route del default"},
		{name: "neighbor in the pod", pod: "ip neigh del 169.254.1.1 dev eth0"},
	}
}

func bridgeDrifts() []drift {
	return []drift{
		{name: "port down", node: "ip link set HOST down"},
		{name: "port off the bridge", node: "ip link set HOST nomaster"},
		{name: "bridge down", node: "ip link set abr0 down"},
		{name: "gateway address", node: "ip addr del 10.8.0.1/24 dev abr0"},
		{name: "bridge deleted", node: "ip link del abr0"},
		{name: "masquerade element", node: "nft flush set inet weft masq4"},
		{name: "address in the pod", pod: "ip addr del POD4/24 dev eth0"},
		{name: "link in the pod down", pod: "ip link set eth0 down"},
		{name: "default route in the pod", pod: "ip route del default"},
	}
}

// TestRepair: each drift is one that CHECK sees; a look repairs it, and the reconciler does so by the kernel's event.
func TestRepair(t *testing.T) {
	for design, all := range map[string][]drift{"routed": routedDrifts(), "bridge": bridgeDrifts()} {
		t.Run(design, func(t *testing.T) {
			n := newRepairNode(t, design == "routed")
			conf := bridge
			if design == "routed" {
				conf = strings.Replace(calico, `"mtu":1400`, `"mtu":1400,"policy_setup_timeout_seconds":0`, 1)
			}
			job := n.podJob(conf, "web-0")
			result := n.add(job)
			job.Prev = &result
			host, addr := result.Interfaces[0].Name, result.IPs[0].Address.Addr().String()
			if design == "bridge" {
				host = result.Interfaces[1].Name
			}
			before := network(t, job.Netns)
			for _, d := range all {
				d.apply(t, host, addr, job.Netns)
				if err := n.Check(t.Context(), job); err == nil {
					t.Errorf("%s: CHECK sees no difference", d.name)
				}
				if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || !repaired {
					t.Errorf("%s: repaired %v: %v", d.name, repaired, err)
				}
				settled(t, d.name+", one look", before, job.Netns)
				if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || repaired {
					t.Errorf("%s: a second look repaired %v: %v", d.name, repaired, err)
				}
				n.pass()
			}
			n.reconcile(t)
			for _, d := range all {
				n.pass()
				d.apply(t, host, addr, job.Netns)
				begin := time.Now()
				settled(t, d.name+", by event", before, job.Netns)
				t.Logf("%s: %v", d.name, time.Since(begin).Round(time.Millisecond))
			}
			// Between two commands of one drift a busy host may have repaired the first: the second is the second time.
			inParts := 0
			for _, d := range all {
				if strings.Contains(d.node+d.pod, ";") {
					inParts++
				}
			}
			if int(n.events.Load()) > inParts || n.counts.Load() == 0 {
				t.Errorf("%d events, %d things repaired", n.events.Load(), n.counts.Load())
			}
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
			n.clean("DEL")
		})
	}
}
