// SPDX-License-Identifier: Apache-2.0

// Package advertise tells the other nodes what they must know of this one: how it is reached, as flannel does (Node),
// which addresses its pods use outside of IPAM (PodIPs), and that it exists, where no Kubernetes says so (Register).
// Conflicts reads what the other nodes advertised.
package advertise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/membership"
	"github.com/weft-net/weft/internal/node/meshconf"
	"github.com/weft-net/weft/internal/node/netfiles"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// comparePeriod is how often the node's own object is compared with what should be there without a sign: an underlay
// may have changed. What failed is tried again after firstRetry, then after twice as long, up to comparePeriod.
const comparePeriod, firstRetry = 30 * time.Second, time.Second

// Mesh is the mesh on this node.
type Mesh interface {
	// Topology is what is in force, nil before the first pass; Planned holds a token when it is a new one.
	Topology() *mesh.Topology
	Planned() <-chan struct{}
}

// NodeConfig is that of Node.
type NodeConfig struct {
	Node     membership.Node
	Mode     config.Mode
	Flannel  config.Flannel
	Settings *meshconf.Settings
	Mesh     Mesh
	// Kubernetes or Directory has the node's object.
	Kubernetes *kube.Store
	Directory  *dir.Store
	Log        *slog.Logger
	After      func(time.Duration) <-chan time.Time
}

// Node advertises how this node is reached: on its own object, and to the flannel plugin.
type Node struct {
	cfg       NodeConfig
	available bool // the node's condition is known to be right
}

// NewNode returns a Node.
func NewNode(cfg NodeConfig) *Node { return &Node{cfg: cfg} }

// Run advertises, as flannel does, until ctx ends. What is advertised is what the reconciler planned last, which knows
// also what back ends in user space found out.
func (t *Node) Run(ctx context.Context) error {
	pause, trouble := firstRetry, ""
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.cfg.Mesh.Planned():
		case <-due:
		}
		err := t.advertise(ctx)
		if err == nil {
			pause, trouble, due = firstRetry, "", t.cfg.After(comparePeriod)
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			t.cfg.Log.Warn("other nodes are not told of this one", "err", err)
		}
		due, pause = t.cfg.After(pause), min(2*pause, comparePeriod)
	}
}

// advertise makes one pass.
func (t *Node) advertise(ctx context.Context) error {
	self, known := t.cfg.Node.Self()
	topology := t.cfg.Mesh.Topology()
	if !known || topology == nil || topology.Self == "" {
		return nil // there will be news
	}
	if t.cfg.Mode != config.ModeFlannel && !t.cfg.Settings.Publishes() && topology.Vtep == (model.VtepWords{}) {
		return nil // nobody waits for a word
	}
	if len(topology.Underlay) == 0 {
		return errors.New("none of the node's addresses is on an interface")
	}
	var err error
	if t.cfg.Mode == config.ModeFlannel {
		err = t.writeSubnetFile(*topology)
	}
	if t.cfg.Settings.Publishes() || t.cfg.Settings.PublishesVtep() {
		err = errors.Join(err, t.publish(ctx, self, topology))
	}
	return err
}

// publish writes what differs to the node's object; mostly that is nothing.
func (t *Node) publish(ctx context.Context, self model.Node, topology *mesh.Topology) error {
	status := kube.NodeStatus{Annotations: map[string]string{}}
	own, err := flannel.Begin(t.cfg.Flannel.AnnotationPrefix)
	if err != nil {
		return err
	}
	house, keys, p, words := flannel.Prefix+"/", flannel.DefaultKeys(), topology.Publish, map[string]string{}
	if t.cfg.Settings.Publishes() {
		words = keys.Write(p, self.Annotations)
	}
	maps.Copy(words, keys.WriteVtep(topology.Vtep))
	for key, value := range words {
		if have, there := self.Annotations[key]; !there || have != value {
			status.Annotations[own+strings.TrimPrefix(key, house)] = value
		}
	}
	if t.cfg.Kubernetes == nil {
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
	if t.cfg.Mode == config.ModeFlannel {
		status.Reason, status.Message = "FlannelIsUp", "Flannel is running on this node" // what watches for it finds it
	}
	if err := t.cfg.Kubernetes.PatchNode(ctx, self.Name, status); err != nil {
		return fmt.Errorf("node %s: %w", self.Name, err)
	}
	t.available = true
	t.cfg.Log.Info("told the other nodes", "backend", p.Backend, "addresses", p.Addrs,
		"annotations", len(status.Annotations))
	return nil
}

// publishInDir writes into the node's manifest.
func (t *Node) publishInDir(ctx context.Context, self model.Node, annotations map[string]string) error {
	if len(annotations) == 0 {
		return nil
	}
	_, err := t.cfg.Directory.Modify(ctx, store.NodeKey(self.Name), store.Annotate(annotations))
	return err
}

// isAvailable asks once whether the condition NetworkUnavailable is False already: facts do not keep conditions.
func (t *Node) isAvailable(ctx context.Context) (bool, error) {
	o, err := t.cfg.Kubernetes.Objects().Get(ctx, store.Nodes(), store.NodeKey(t.cfg.Node.Name))
	if err != nil {
		return false, err
	}
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status string } `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(o.Raw, &n); err != nil {
		return false, fmt.Errorf("node %s: %w", t.cfg.Node.Name, err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "NetworkUnavailable" {
			return c.Status == "False", nil
		}
	}
	return false, nil
}

// writeSubnetFile tells the flannel plugin what pods of this node get.
func (t *Node) writeSubnetFile(topology mesh.Topology) error {
	env, err := t.cfg.Settings.SubnetEnv(topology.PodCIDRs, topology.PacketMTU())
	if err != nil {
		return err
	}
	return netfiles.WriteSubnet(t.cfg.Flannel.SubnetFile, env, t.cfg.Log)
}
