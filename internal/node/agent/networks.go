// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"

	"github.com/weft-net/weft/internal/cluster/filecluster"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/node/cniserver"
	"github.com/weft-net/weft/internal/node/cri/podresources"
)

// networks lets the server find the networks that pods ask for, and tell what became of them, where there is a cluster
// that knows of pods.
func (a *agent) networks(c *cniserver.Config) {
	root := a.cfg.Install.HostRoot
	devices := podresources.Kubelet{Socket: filepath.Join(root, podresources.Socket), Checkpoint: filepath.Join(root, podresources.Checkpoint)}
	c.Fit = a.fit
	c.Networks = &multinet.Resolver{Root: root, Keep: a.cfg.VirtualMachines.Keep()}
	switch {
	case a.kube != nil:
		devices.Devices = a.kube.Devices
		c.Networks.Cluster, c.Reporter, c.Pods = a.kube, a.kube, a.facts
		c.Networks.PermitPaths = a.permitPaths()
	case a.dir != nil:
		cluster := filecluster.Cluster{Facts: a.facts, Store: a.dir, Node: a.cfg.Node, Now: a.cfg.Now}
		c.Networks.Cluster, c.Reporter, c.Pods = cluster, cluster, a.facts
	}
	c.Networks.Devices = devices
}

// permitPaths are the node's files that networks of Kubernetes may name: those that are permitted, and where the node's own
// configuration has host-local keep addresses anyway.
func (a *agent) permitPaths() []string {
	out := append([]string{}, a.cfg.Network.PermitPaths...)
	if a.cfg.AddressDir != "" {
		out = append(out, a.cfg.AddressDir)
	}
	return out
}
