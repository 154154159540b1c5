// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// weft is the compiler and the driver as they run in the agent: facts come one by one, and what they change is written
// in one transaction.
type weft struct {
	index *policy.Index
	conn  *kernel.Conn
	pods  int
}

func (*weft) name() string { return "weft" }

func (w *weft) close() {
	if w.conn != nil {
		_ = w.conn.Close()
	}
	w.conn = nil
}

// space is the namespace of all.
const space = "bench"

func (w *weft) program(node *netns.NS, c Cell) error {
	var err error
	if w.conn, err = kernel.Dial(node); err != nil {
		return err
	}
	w.index = policy.New(policy.Config{Node: "a"})
	w.index.SetNamespace(model.Namespace{Name: space})
	for link, p := range map[string]model.Pod{
		clientLink: {
			Name: "client", Labels: map[string]string{"of": strconv.Itoa(c.Policies - 1)}, IPs: []netip.Addr{clientAddr()},
		},
		serverLink: {Name: "server", Labels: map[string]string{"app": "server"}, IPs: []netip.Addr{serverAddr()}},
	} {
		p.Namespace, p.UID, p.Node, p.Phase = space, p.Name, "a", "Running"
		w.index.SetPod(p)
		w.index.SetEndpoint(model.WorkloadEndpoint{
			Pod: model.PodRef{Namespace: space, Name: p.Name, UID: p.UID}, Node: "a", IfName: "eth0", HostLink: link,
			Addrs: p.IPs, HostEnd: model.HostEndRouted,
		})
	}
	for i := range c.Policies {
		w.policy(c, i)
		for _, p := range c.peersOf(i) {
			if !c.Blocks && p.Addr() != clientAddr() {
				w.pod(i, p.Addr())
			}
		}
	}
	return w.whole()
}

// whole has the kernel hold the tables, as at the agent's start.
func (w *weft) whole() error {
	var all []state.Table
	for _, t := range w.index.Tables() {
		all = append(all, t.Table)
	}
	_ = w.index.Changes()
	tables, err := w.conn.Netfilter()
	if err != nil {
		return err
	}
	return tables.Apply(context.Background(), all)
}

// pod is a peer of a policy, on another node.
func (w *weft) pod(policy int, addr netip.Addr) {
	w.pods++
	w.index.SetPod(model.Pod{
		Namespace: space, Name: fmt.Sprintf("peer-%d", w.pods), UID: fmt.Sprintf("uid-%d", w.pods), Node: "b",
		Phase:  "Running",
		Labels: map[string]string{"of": strconv.Itoa(policy)}, IPs: []netip.Addr{addr},
	})
}

// policy is one that lets its peers in: the pods that bear its number, or ranges of addresses.
func (w *weft) policy(c Cell, i int, more ...netip.Prefix) {
	rule := model.PolicyRule{
		Action: model.PolicyAccept, Ports: []model.PolicyPort{{Protocol: model.TCP, First: 7000, Last: 7000}},
	}
	if c.Blocks {
		for _, p := range append(c.peersOf(i), more...) {
			rule.Peers = append(rule.Peers, model.PolicyPeer{Block: &model.IPBlock{CIDR: p}})
		}
	} else {
		of := &model.PodPeer{Namespace: space, Pods: model.Selector{Labels: map[string]string{"of": strconv.Itoa(i)}}}
		rule.Peers = []model.PolicyPeer{{Pods: of}}
	}
	w.index.SetPolicy(model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: space, Name: fmt.Sprintf("policy-%d", i)},
		Subject:   model.PodPeer{Namespace: space, Pods: model.Selector{Labels: map[string]string{"app": "server"}}},
		Ingress:   model.PolicyDirection{On: true, Rules: []model.PolicyRule{rule}},
	})
}

func (w *weft) more(_ *netns.NS, c Cell, p netip.Prefix) error {
	if c.Blocks {
		w.policy(c, 0, p)
	} else {
		w.pod(0, p.Addr())
	}
	return w.write()
}

// write has the kernel hear what changed.
func (w *weft) write() error {
	var changes []state.TableChange
	for _, c := range w.index.Changes() {
		changes = append(changes, c.TableChange)
	}
	tables, err := w.conn.Netfilter()
	if err != nil {
		return err
	}
	return tables.Change(context.Background(), changes)
}
