// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/config"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/store"
	"github.com/weft-net/weft/internal/store/kube"
)

// tellPeriod is how often the node's own object is compared with what should be there without a sign: an underlay may have
// changed. What failed is tried again after tellAgain, then after twice as long, up to tellPeriod.
const tellPeriod, tellAgain = 30 * time.Second, time.Second

// telling tells whether other nodes, or the plugin flannel, are to be told of this one.
func (a *agent) telling() bool {
	return a.facts != nil && (a.cfg.Network.Mode == config.ModeFlannel || a.publishing())
}

// publishing tells whether the node's object says how the node is reached.
func (a *agent) publishing() bool {
	mode := a.cfg.Network.Mode
	return a.kube != nil && a.cfg.Flannel.Publish && (mode == config.ModeCluster || mode == config.ModeFlannel)
}

// tellNode says how this node is reached, as flannel does: on its own object, and to the plugin flannel. Until ctx ends.
func (a *agent) tellNode(ctx context.Context) error {
	changed, unsubscribe := a.facts.Subscribe()
	defer unsubscribe()
	t := &nodeTeller{agent: a}
	pause, trouble := tellAgain, ""
	for {
		wait := tellPeriod
		if err := t.tell(ctx); err == nil {
			pause, trouble = tellAgain, ""
		} else {
			t.last = model.Node{}
			wait, pause = pause, min(2*pause, tellPeriod)
			if words := err.Error(); words != trouble && ctx.Err() == nil {
				trouble = words
				a.cfg.Log.Warn("other nodes are not told of this one", "err", err)
			}
		}
		due := a.cfg.After(wait)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-due:
				waiting = false
			case <-changed:
				self, ok := a.self()
				waiting = !ok || pause != tellAgain || reflect.DeepEqual(self, t.last) // pods come and go much more often
			}
		}
	}
}

// nodeTeller knows what it has said.
type nodeTeller struct {
	*agent
	last      model.Node // the node when it was last told of
	available bool       // its condition is known to be right
}

// self is the node's own object.
func (a *agent) self() (model.Node, bool) {
	c := a.facts.Cluster()
	if c == nil {
		return model.Node{}, false
	}
	for _, n := range c.Nodes {
		if n.Name == a.cfg.Node {
			return n, true
		}
	}
	return model.Node{}, false
}

// tell makes one pass. What is to be said depends on no other node.
func (t *nodeTeller) tell(ctx context.Context) error {
	self, ok := t.self()
	if !ok {
		return nil // there will be news
	}
	alone := &model.Cluster{Self: self.Name, Nodes: []model.Node{self}}
	answers, err := kernel.Spaces{Host: t.host}.Observe(ctx, mesh.Observe(alone, t.meshConfig()))
	if err != nil {
		return err
	}
	topology, err := mesh.Plan(alone, t.meshConfig(), answers)
	if err != nil {
		return err
	}
	if len(topology.Underlay) == 0 {
		return errors.New("none of the node's addresses is on an interface")
	}
	t.last = self
	if t.cfg.Network.Mode == config.ModeFlannel {
		err = t.writeSubnetFile(topology)
	}
	if t.publishing() {
		err = errors.Join(err, t.publish(ctx, self, topology.Publish))
	}
	return err
}

// publish writes what differs to the node's object; mostly that is nothing.
func (t *nodeTeller) publish(ctx context.Context, self model.Node, p model.Published) error {
	status := kube.NodeStatus{Annotations: map[string]string{}}
	own, err := flannel.Begin(t.cfg.Flannel.AnnotationPrefix)
	if err != nil {
		return err
	}
	house := flannel.Prefix + "/"
	for key, value := range flannel.DefaultKeys().Write(p, self.Annotations) {
		if have, there := self.Annotations[key]; !there || have != value {
			status.Annotations[own+strings.TrimPrefix(key, house)] = value
		}
	}
	if !t.available {
		if t.available, err = t.isAvailable(ctx); err != nil {
			return err
		}
		status.Available = !t.available
	}
	if len(status.Annotations) == 0 && !status.Available {
		return nil
	}
	status.Reason, status.Message = "WeftIsUp", "weft is running on this node"
	if t.cfg.Network.Mode == config.ModeFlannel {
		status.Reason, status.Message = "FlannelIsUp", "Flannel is running on this node" // what watches for it finds it
	}
	if err := t.kube.PatchNode(ctx, self.Name, status); err != nil {
		return fmt.Errorf("node %s: %w", self.Name, err)
	}
	t.available = true
	t.cfg.Log.Info("told the other nodes", "backend", p.Backend, "addresses", p.Addrs, "annotations", len(status.Annotations))
	return nil
}

// isAvailable asks once whether the condition NetworkUnavailable is False already: facts do not keep conditions.
func (t *nodeTeller) isAvailable(ctx context.Context) (bool, error) {
	o, err := t.kube.Objects().Get(ctx, store.Nodes(), store.NodeKey(t.cfg.Node))
	if err != nil {
		return false, err
	}
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status string } `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(o.Raw, &n); err != nil {
		return false, fmt.Errorf("node %s: %w", t.cfg.Node, err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "NetworkUnavailable" {
			return c.Status == "False", nil
		}
	}
	return false, nil
}
