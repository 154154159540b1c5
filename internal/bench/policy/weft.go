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

// weft uses the policy planner and the kernel driver as the agent does: objects arrive one by one, and the resulting
// changes are written in one transaction.
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

// podNamespace is the namespace of all pods.
const podNamespace = "bench"

func (w *weft) program(node *netns.NS, c Cell) error {
	var err error
	if w.conn, err = kernel.Dial(node); err != nil {
		return err
	}
	w.index = policy.New(policy.Config{Node: "a"})
	w.index.SetNamespace(model.Namespace{Name: podNamespace})
	for link, p := range map[string]model.Pod{
		clientLink: {
			Name: "client", Labels: map[string]string{"of": strconv.Itoa(c.Policies - 1)}, IPs: []netip.Addr{clientAddr()},
		},
		serverLink: {Name: "server", Labels: map[string]string{"app": "server"}, IPs: []netip.Addr{serverAddr()}},
	} {
		p.Namespace, p.UID, p.Node, p.Phase = podNamespace, p.Name, "a", "Running"
		w.index.SetPod(p)
		w.index.SetEndpoint(model.WorkloadEndpoint{
			Pod: model.PodRef{Namespace: podNamespace, Name: p.Name, UID: p.UID}, Node: "a", IfName: "eth0", HostLink: link,
			Addrs: p.IPs, HostEnd: model.HostEndRouted,
		})
	}
	for i := range c.Policies {
		w.setPolicy(c, i)
		for _, p := range c.peersOf(i) {
			if !c.Blocks && p.Addr() != clientAddr() {
				w.setPeerPod(i, p.Addr())
			}
		}
	}
	return w.writeAll()
}

// writeAll writes all tables, as the agent does when it starts.
func (w *weft) writeAll() error {
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

// setPeerPod adds a peer of a policy, a pod on another node.
func (w *weft) setPeerPod(policy int, addr netip.Addr) {
	w.pods++
	w.index.SetPod(model.Pod{
		Namespace: podNamespace, Name: fmt.Sprintf("peer-%d", w.pods), UID: fmt.Sprintf("uid-%d", w.pods), Node: "b",
		Phase:  "Running",
		Labels: map[string]string{"of": strconv.Itoa(policy)}, IPs: []netip.Addr{addr},
	})
}

// setPolicy sets policy i, which allows its peers: pods with its label, or address ranges.
func (w *weft) setPolicy(c Cell, i int, more ...netip.Prefix) {
	rule := model.PolicyRule{
		Action: model.PolicyAccept, Ports: []model.PolicyPort{{Protocol: model.TCP, First: 7000, Last: 7000}},
	}
	if c.Blocks {
		for _, p := range append(c.peersOf(i), more...) {
			rule.Peers = append(rule.Peers, model.PolicyPeer{Block: &model.IPBlock{CIDR: p}})
		}
	} else {
		pods := &model.PodPeer{
			Namespace: podNamespace, Pods: model.Selector{Labels: map[string]string{"of": strconv.Itoa(i)}},
		}
		rule.Peers = []model.PolicyPeer{{Pods: pods}}
	}
	w.index.SetPolicy(model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: podNamespace, Name: fmt.Sprintf("policy-%d", i)},
		Subject:   model.PodPeer{Namespace: podNamespace, Pods: model.Selector{Labels: map[string]string{"app": "server"}}},
		Ingress:   model.PolicyDirection{On: true, Rules: []model.PolicyRule{rule}},
	})
}

func (w *weft) addPeer(_ *netns.NS, c Cell, p netip.Prefix) error {
	if c.Blocks {
		w.setPolicy(c, 0, p)
	} else {
		w.setPeerPod(0, p.Addr())
	}
	return w.write()
}

// write writes the changes since the last write.
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
