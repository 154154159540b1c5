// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/filecluster"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/node/cniserver"
	"github.com/weft-net/weft/internal/node/cri/podresources"
)

// networks configures the server to resolve pods' networks and to report their status, if there is a cluster with pods. In
// mode policy a pod has what the other vendor's configuration says.
func networks(cfg Config, d *datastore, c *cniserver.Config) {
	root := cfg.Install.HostRoot
	devices := podresources.Kubelet{
		Socket: filepath.Join(root, podresources.Socket), Checkpoint: filepath.Join(root, podresources.Checkpoint),
	}
	c.Networks = &multinet.Resolver{Root: root, Keep: cfg.VirtualMachines.Keep()}
	switch {
	case cfg.Network.Mode == config.ModePolicy:
	case d.kube != nil:
		devices.Devices = d.kube.Devices
		c.Networks.Cluster, c.Reporter, c.Pods = d.kube, d.kube, d.facts
		c.Networks.PermitPaths = permitPaths(cfg)
	case d.dir != nil:
		cluster := filecluster.Cluster{Facts: d.facts, Store: d.dir, Node: cfg.Node, Now: cfg.Now}
		c.Networks.Cluster, c.Reporter, c.Pods = cluster, cluster, d.facts
	}
	c.Networks.Devices, c.PodIPs = devices, cfg.Network.PodIPAnnotations
}

// permitPaths returns the node's files that networks of Kubernetes may name: the configured ones, and the directories
// in which the node's own configuration has host-local store addresses.
func permitPaths(cfg Config) []string {
	out := append([]string{}, cfg.Network.PermitPaths...)
	if cfg.AddressDir != "" {
		out = append(out, cfg.AddressDir)
	}
	return out
}
