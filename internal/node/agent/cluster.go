// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/flannel"
)

// objectStore is where the cluster's objects are.
type objectStore interface {
	facts.Source
	Objects() store.Objects
}

// openStore opens the place that was named, if any.
func (a *agent) openStore() error {
	cfg := a.cfg
	if cfg.StoreDir != "" {
		d, err := dir.Open(cfg.StoreDir)
		if err == nil {
			a.store, a.dir = d, d
		}
		return err
	}
	if len(cfg.Etcd.Endpoints) > 0 {
		return a.openEtcd()
	}
	k := cfg.Kubernetes
	if !k.InCluster && k.Kubeconfig == "" {
		return nil
	}
	begin, err := flannel.Begin(cfg.Flannel.AnnotationPrefix)
	if err != nil {
		return err
	}
	kube.LogTo(cfg.Log.With("room", "client-go"))
	s, err := kube.Open(kube.Config{
		Access: kube.Access{InCluster: k.InCluster, Kubeconfig: k.Kubeconfig, Server: k.Server, Getenv: cfg.Getenv},
		Node:   cfg.Node, Dir: filepath.Join(cfg.StateDir, "cluster"), Agent: "weft/" + cfg.Version, Flannel: begin, Pools: cfg.Network.FromPools(),
		Log: cfg.Log, Now: cfg.Now, After: cfg.After,
	})
	if err == nil {
		a.store, a.kube = s, s
	}
	return err
}
