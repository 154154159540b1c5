// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/weft-net/weft/internal/cniserver"
	"github.com/weft-net/weft/internal/cri/podresources"
	"github.com/weft-net/weft/internal/multinet"
)

// networks lets the server find the networks that pods ask for, and tell what became of them, where there is a cluster
// that knows of pods.
func (a *agent) networks(c *cniserver.Config) {
	devices := podresources.Kubelet{Socket: podresources.Socket, Checkpoint: podresources.Checkpoint}
	switch {
	case a.kube != nil:
		c.Networks, c.Reporter, c.Pods = &multinet.Resolver{Cluster: a.kube, Devices: devices}, a.kube, a.facts
	case a.dir != nil:
		cluster := filed{facts: a.facts, store: a.dir, node: a.cfg.Node, now: a.cfg.Now}
		c.Networks, c.Reporter, c.Pods = &multinet.Resolver{Cluster: cluster, Devices: devices}, cluster, a.facts
	}
}
