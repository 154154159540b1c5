// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// tellPeriod is how often the node's own object is compared with what should be there without a sign: an underlay may have
// changed. What failed is tried again after tellAgain, then after twice as long, up to tellPeriod.
const tellPeriod, tellAgain = 30 * time.Second, time.Second

// telling tells whether other nodes, or the plugin flannel, are to be told of this one.
func (a *agent) telling() bool {
	return a.facts != nil && (a.cfg.Network.Mode == config.ModeFlannel || a.publishing() || a.publishingVtep())
}

// publishingVtep tells whether the node's object says the node's VtepMAC, where there is one that nothing else says.
func (a *agent) publishingVtep() bool {
	if a.kube != nil {
		return a.publishing()
	}
	return a.dir != nil && a.cfg.Flannel.Publish && a.cfg.Network.Mode != config.ModeMultus
}

// publishing tells whether the node's object says how the node is reached.
func (a *agent) publishing() bool {
	mode := a.cfg.Network.Mode
	if a.kube == nil {
		// In a directory nothing is told that everybody could say by himself.
		return a.dir != nil && a.cfg.Flannel.Publish && mode != config.ModeMultus && a.cfg.Network.Encapsulation == "wireguard"
	}
	return a.cfg.Flannel.Publish && (mode == config.ModeCluster || mode == config.ModeFlannel)
}

// tellNode says how this node is reached, as flannel does: on its own object, and to the plugin flannel. Until ctx ends. What
// is said is what the reconciler planned last, which knows also what back ends in user space found out.
func (a *agent) tellNode(ctx context.Context) error {
	t := &nodeTeller{agent: a}
	pause, trouble := tellAgain, ""
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.planned:
		case <-due:
		}
		err := t.tell(ctx)
		if err == nil {
			pause, trouble, due = tellAgain, "", a.cfg.After(tellPeriod)
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			a.cfg.Log.Warn("other nodes are not told of this one", "err", err)
		}
		due, pause = a.cfg.After(pause), min(2*pause, tellPeriod)
	}
}

// nodeTeller knows what it has said.
type nodeTeller struct {
	*agent
	available bool // the node's condition is known to be right
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

// tell makes one pass.
func (t *nodeTeller) tell(ctx context.Context) error {
	self, known := t.self()
	topology := t.topology.Load()
	if !known || topology == nil || topology.Self == "" {
		return nil // there will be news
	}
	if t.cfg.Network.Mode != config.ModeFlannel && !t.publishing() && topology.Vtep == (model.VtepWords{}) {
		return nil // nobody waits for a word
	}
	if len(topology.Underlay) == 0 {
		return errors.New("none of the node's addresses is on an interface")
	}
	var err error
	if t.cfg.Network.Mode == config.ModeFlannel {
		err = t.writeSubnetFile(*topology)
	}
	if t.publishing() || t.publishingVtep() {
		err = errors.Join(err, t.publish(ctx, self, topology))
	}
	return err
}

// publish writes what differs to the node's object; mostly that is nothing.
func (t *nodeTeller) publish(ctx context.Context, self model.Node, topology *mesh.Topology) error {
	status := kube.NodeStatus{Annotations: map[string]string{}}
	own, err := flannel.Begin(t.cfg.Flannel.AnnotationPrefix)
	if err != nil {
		return err
	}
	house, keys, p, words := flannel.Prefix+"/", flannel.DefaultKeys(), topology.Publish, map[string]string{}
	if t.publishing() {
		words = keys.Write(p, self.Annotations)
	}
	maps.Copy(words, keys.WriteVtep(topology.Vtep))
	for key, value := range words {
		if have, there := self.Annotations[key]; !there || have != value {
			status.Annotations[own+strings.TrimPrefix(key, house)] = value
		}
	}
	if t.kube == nil {
		return t.publishInDir(ctx, self, status.Annotations)
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

// publishInDir writes into the node's manifest.
func (t *nodeTeller) publishInDir(ctx context.Context, self model.Node, annotations map[string]string) error {
	if len(annotations) == 0 {
		return nil
	}
	_, err := t.dir.Modify(ctx, store.NodeKey(self.Name), store.Annotate(annotations))
	return err
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
