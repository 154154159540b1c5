// SPDX-License-Identifier: Apache-2.0

// Package advertise publishes to the other nodes how this node is reached, as flannel does (Node), which addresses its
// pods use outside of IPAM (PodIPs), and its Node object where there is no Kubernetes (Register). Conflicts reads what
// the other nodes advertise.
package advertise

import (
	"context"
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

// comparePeriod is how often the node's own object is compared without an event: an underlay may have changed. A
// failed write is retried after firstRetry, then after twice as long, up to comparePeriod.
const comparePeriod, firstRetry = 30 * time.Second, time.Second

// Mesh is the state of the mesh on this node.
type Mesh interface {
	// Topology is the current topology, nil before the first pass; Planned receives a token when it has changed.
	Topology() *mesh.Topology
	Planned() <-chan struct{}
}

// NodeConfig configures a Node.
type NodeConfig struct {
	Node     membership.Node
	Mode     config.Mode
	Flannel  config.Flannel
	Settings *meshconf.Settings
	Mesh     Mesh
	// Kubernetes or Directory is the store of the node's object.
	Kubernetes *kube.Store
	Directory  *dir.Store
	Log        *slog.Logger
	After      func(time.Duration) <-chan time.Time
}

// Node advertises how this node is reached: on its own object, and to the flannel plugin.
type Node struct{ cfg NodeConfig }

// NewNode returns a Node.
func NewNode(cfg NodeConfig) *Node { return &Node{cfg: cfg} }

// Run advertises, as flannel does, until ctx ends. The source is the reconciler's last topology, which includes what
// user space backends found out.
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
			t.cfg.Log.Warn("agent could not advertise the node", "err", err)
		}
		due, pause = t.cfg.After(pause), min(2*pause, comparePeriod)
	}
}

// advertise makes one pass.
func (t *Node) advertise(ctx context.Context) error {
	self, known := t.cfg.Node.Self()
	topology := t.cfg.Mesh.Topology()
	if !known || topology == nil || topology.Self == "" {
		return nil // retried at the next event
	}
	if t.cfg.Mode != config.ModeFlannel && !t.publishes(self, topology) && topology.VTEP == (model.VTEPData{}) {
		return nil // nothing to publish
	}
	if len(topology.Underlay) == 0 {
		return errors.New("none of the node's addresses is on an interface")
	}
	var err error
	if t.cfg.Mode == config.ModeFlannel {
		err = t.writeSubnetFile(*topology)
	}
	if t.publishes(self, topology) || t.cfg.Settings.PublishesVTEP() {
		err = errors.Join(err, t.publishAnnotations(ctx, self, topology))
	}
	return err
}

// publishes reports whether the node's object says how the node is reached: as configured, or to replace what the node
// published with another backend.
func (t *Node) publishes(self model.Node, topology *mesh.Topology) bool {
	return t.cfg.Settings.Publishes() || t.cfg.Settings.PublishesVTEP() && self.Published != nil &&
		self.Published.Backend != "" && self.Published.Backend != topology.Backend
}

// publishAnnotations writes the annotations that differ, including the VTEP MAC, to the node's object; usually there
// are none.
func (t *Node) publishAnnotations(ctx context.Context, self model.Node, topology *mesh.Topology) error {
	status := kube.NodeStatus{Annotations: map[string]string{}}
	own, err := flannel.Begin(t.cfg.Flannel.AnnotationPrefix)
	if err != nil {
		return err
	}
	defaultPrefix, keys := flannel.Prefix+"/", flannel.DefaultKeys()
	published, annotations := topology.Publish, map[string]string{}
	if t.publishes(self, topology) {
		annotations = keys.Write(published, self.Annotations)
	}
	maps.Copy(annotations, keys.WriteVTEP(topology.VTEP))
	for key, value := range annotations {
		if have, there := self.Annotations[key]; !there || have != value {
			status.Annotations[own+strings.TrimPrefix(key, defaultPrefix)] = value
		}
	}
	if t.cfg.Kubernetes == nil {
		return t.publishInDir(ctx, self, status.Annotations)
	}
	if len(status.Annotations) == 0 {
		return nil
	}
	if err := t.cfg.Kubernetes.PatchNode(ctx, self.Name, status); err != nil {
		return fmt.Errorf("node %s: %w", self.Name, err)
	}
	t.cfg.Log.Info("node's backend is advertised", "backend", published.Backend, "addresses", published.Addrs,
		"annotations", len(status.Annotations))
	return nil
}

// publishInDir writes to the node's manifest.
func (t *Node) publishInDir(ctx context.Context, self model.Node, annotations map[string]string) error {
	if len(annotations) == 0 {
		return nil
	}
	_, err := t.cfg.Directory.Modify(ctx, store.NodeKey(self.Name), store.Annotate(annotations))
	return err
}

// writeSubnetFile writes the flannel plugin's subnet file.
func (t *Node) writeSubnetFile(topology mesh.Topology) error {
	env, err := t.cfg.Settings.SubnetEnv(topology.PodCIDRs, topology.PacketMTU())
	if err != nil {
		return err
	}
	return netfiles.WriteSubnet(t.cfg.Flannel.SubnetFile, env, t.cfg.Log)
}
