// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-net/weft/internal/flannel"
)

// ErrNoConfig tells that there is no configuration at the prefix. Perhaps somebody writes one.
var ErrNoConfig = errors.New("there is no configuration")

func (r *Registry) configKey() string { return r.cfg.Prefix + "/config" }

func (r *Registry) subnetsKey() string { return r.cfg.Prefix + "/subnets/" }

// entry is a lease as it is kept.
type entry struct {
	flannel.Lease
	key     string // the last part
	value   string
	lease   clientv3.LeaseID // 0 is a reservation, which does not end
	created int64
}

// picture is the network at one moment.
type picture struct {
	config   []byte // nil where there is none
	entries  []entry
	revision int64
}

// NetConf is the network's configuration as text.
func (r *Registry) NetConf(ctx context.Context) ([]byte, error) {
	var out []byte
	err := r.ask(ctx, "key "+r.configKey(), func(ctx context.Context, c *clientv3.Client) error {
		answer, err := c.Get(ctx, r.configKey())
		if err != nil {
			return err
		}
		if len(answer.Kvs) == 0 {
			return ErrNoConfig
		}
		out = answer.Kvs[0].Value
		return nil
	})
	return out, err
}

// look reads configuration and leases of one moment. What cannot be understood is left out and told of.
func (r *Registry) look(ctx context.Context) (picture, error) {
	var p picture
	err := r.ask(ctx, "subnets", func(ctx context.Context, c *clientv3.Client) error {
		answer, err := c.Txn(ctx).Then(clientv3.OpGet(r.configKey()), clientv3.OpGet(r.subnetsKey(), clientv3.WithPrefix())).Commit()
		if err != nil {
			return err
		}
		p.revision = answer.Header.Revision
		if kvs := answer.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			p.config = kvs[0].Value
		}
		for _, kv := range answer.Responses[1].GetResponseRange().Kvs {
			e, err := r.understand(kv)
			if err != nil {
				r.log.Warn("left out", "err", err)
				continue
			}
			p.entries = append(p.entries, e)
		}
		return nil
	})
	return p, err
}

func (r *Registry) understand(kv *mvccpb.KeyValue) (entry, error) {
	key := strings.TrimPrefix(string(kv.Key), r.subnetsKey())
	l, err := flannel.ParseLease(key, kv.Value)
	return entry{Lease: l, key: key, value: string(kv.Value), lease: clientv3.LeaseID(kv.Lease), created: kv.CreateRevision}, err
}
