// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
)

// enlistAgain is when a node that could not be written is tried again.
const enlistAgain = 2 * time.Second

// openEtcd makes the way to the etcd that hosts without Kubernetes share.
func (a *agent) openEtcd() error {
	e := a.cfg.Etcd
	s, err := etcd.OpenShelf(etcd.Config{
		Access: etcd.Access{
			Endpoints: e.Endpoints, Prefix: e.Prefix, CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile, Username: e.Username, Password: e.Password,
		},
		Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
	})
	if err == nil {
		a.store, a.etcd = s, s
	}
	return err
}

// meshes tells whether there are other nodes to reach. Hosts that share an etcd have networks of their own, unless weft's is
// asked for.
func (a *agent) meshes() bool {
	return a.store != nil && (a.etcd == nil || a.placing())
}

// enlist writes that this node is there: blocks of a node that has no object are taken over in time. There is no Kubernetes to
// do it; people delete the objects of hosts that are gone for good.
func (a *agent) enlist(ctx context.Context) error {
	node, err := store.NewObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, a.cfg.Node))
	if err != nil {
		return err
	}
	trouble := ""
	for {
		_, err := a.etcd.Objects().Create(ctx, store.Nodes(), node)
		if err == nil || errors.Is(err, store.ErrExists) || ctx.Err() != nil {
			return nil
		}
		if err.Error() != trouble {
			trouble = err.Error()
			a.cfg.Log.Warn("this node is not written down yet; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.After(enlistAgain):
		}
	}
}
