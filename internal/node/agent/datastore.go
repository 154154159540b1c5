// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/policy"
)

// objectStore has the cluster's objects.
type objectStore interface {
	facts.Source
	Objects() store.Objects
}

// datastore is the datastore of the cluster's objects, of one kind; without a kind there is no cluster.
type datastore struct {
	objectStore
	dir  *dir.Store        // a directory
	kube *kube.Store       // an API server
	etcd *etcd.ObjectStore // an etcd that hosts without Kubernetes share
	// facts are nil without a cluster.
	facts *facts.Facts
	// inCluster reports that the agent is a pod.
	inCluster bool
}

// openDatastore opens the configured datastore, if any.
func openDatastore(cfg Config) (datastore, error) {
	d := datastore{inCluster: cfg.Kubernetes.InCluster}
	err := d.open(cfg)
	if d.objectStore != nil {
		d.facts = facts.New(d.objectStore, cfg.Node, cfg.Log, cfg.After)
	}
	return d, err
}

func (d *datastore) open(cfg Config) error {
	if cfg.StoreDir != "" {
		s, err := dir.Open(cfg.StoreDir)
		if err == nil {
			d.objectStore, d.dir = s, s
		}
		return err
	}
	if len(cfg.Etcd.Endpoints) > 0 {
		return d.openEtcd(cfg)
	}
	k := cfg.Kubernetes
	if !k.InCluster && k.Kubeconfig == "" {
		return nil
	}
	begin, err := flannel.Begin(cfg.Flannel.AnnotationPrefix)
	if err != nil {
		return err
	}
	kube.LogTo(cfg.Log.With("component", "client-go"))
	s, err := kube.Open(kube.Config{
		Access: kube.Access{InCluster: k.InCluster, Kubeconfig: k.Kubeconfig, Server: k.Server, Getenv: cfg.Getenv},
		Node:   cfg.Node, Dir: filepath.Join(cfg.StateDir, "cluster"), Agent: "weft/" + cfg.Version, Flannel: begin,
		Pools: cfg.Network.FromPools(),
		Log:   cfg.Log, Now: cfg.Now, After: cfg.After,
	})
	if err == nil {
		d.objectStore, d.kube = s, s
	}
	return err
}

// openEtcd creates the client of an etcd that is shared by hosts without Kubernetes.
func (d *datastore) openEtcd(cfg Config) error {
	e := cfg.Etcd
	s, err := etcd.OpenObjects(etcd.Config{
		Access: etcd.Access{
			Endpoints: e.Endpoints, Prefix: e.Prefix, CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile,
			Username: e.Username, Password: e.Password,
		},
		Log: cfg.Log, Now: cfg.Now, After: cfg.After,
	})
	if err == nil {
		d.objectStore, d.etcd = s, s
	}
	return err
}

// cluster returns the current snapshot, nil if there is none.
func (d *datastore) cluster() *model.Cluster {
	if d.facts == nil {
		return nil
	}
	return d.facts.Cluster()
}

// snapshots returns the function cluster if there is a datastore, otherwise nil.
func (d *datastore) snapshots() func() *model.Cluster {
	if d.facts == nil {
		return nil
	}
	return d.facts.Cluster
}

// policies returns the source of policies.
func (d *datastore) policies() policy.Source {
	if d.kube != nil {
		return d.kube.Policies()
	}
	return d.Objects()
}

// apart reports whether the controller is a separate program: an agent in a pod only has a node's permissions.
func (d *datastore) apart() bool { return d.kube != nil && d.inCluster }

func (d *datastore) close() error {
	if d.etcd == nil {
		return nil
	}
	return d.etcd.Close()
}
