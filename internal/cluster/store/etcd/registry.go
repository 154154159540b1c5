// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/flannel"
)

// ErrNoConfig means that there is no configuration at the prefix yet.
var ErrNoConfig = errors.New("there is no configuration")

func (r *Registry) configKey() string { return r.cfg.Prefix + "/config" }

func (r *Registry) subnetsKey() string { return r.cfg.Prefix + "/subnets/" }

// entry is a stored lease.
type entry struct {
	flannel.Lease
	key     string // the last part
	lease   int64  // 0 is a reservation, which does not expire
	created int64
}

// networkState is the network's configuration and leases at one revision.
type networkState struct {
	config   []byte // nil if there is none
	entries  []entry
	revision int64
}

// NetConf returns the network's configuration as text.
func (r *Registry) NetConf(ctx context.Context) ([]byte, error) {
	var out []byte
	err := r.request(ctx, "key "+r.configKey(), func(ctx context.Context, c *connection) error {
		answer, err := c.call(ctx, "KV/Range", get(r.configKey(), false))
		if err != nil {
			return err
		}
		var found result
		if err := found.readRange(answer); err != nil {
			return err
		}
		if len(found.ranges[0]) == 0 {
			return ErrNoConfig
		}
		out = []byte(found.ranges[0][0].value)
		return nil
	})
	return out, err
}

// txn makes a transaction.
func (c *connection) txn(ctx context.Context, conditions, ops []message) (result, error) {
	var m message
	for _, condition := range conditions {
		m = m.sub(1, condition)
	}
	for _, op := range ops {
		m = m.sub(2, op)
	}
	var out result
	answer, err := c.call(ctx, "KV/Txn", m)
	if err == nil {
		err = out.readTxn(answer)
	}
	return out, err
}

// read reads the configuration and the leases at one revision. Invalid leases are logged and left out.
func (r *Registry) read(ctx context.Context) (networkState, error) {
	var p networkState
	err := r.request(ctx, "subnets", func(ctx context.Context, c *connection) error {
		found, err := c.txn(ctx, nil, []message{opGet(get(r.configKey(), false)), opGet(get(r.subnetsKey(), true))})
		if err == nil && len(found.ranges) != 2 {
			err = fmt.Errorf("%d answers to 2 questions", len(found.ranges))
		}
		if err != nil {
			return err
		}
		p = networkState{revision: found.revision}
		if kvs := found.ranges[0]; len(kvs) > 0 {
			p.config = []byte(kvs[0].value)
		}
		for _, kv := range found.ranges[1] {
			e, err := r.parseEntry(kv)
			if err != nil {
				r.log.Warn("lease is invalid; ignoring it", "err", err)
				continue
			}
			p.entries = append(p.entries, e)
		}
		return nil
	})
	return p, err
}

func (r *Registry) parseEntry(kv keyValue) (entry, error) {
	key := strings.TrimPrefix(kv.key, r.subnetsKey())
	l, err := flannel.ParseLease(key, []byte(kv.value))
	return entry{Lease: l, key: key, lease: kv.lease, created: kv.created}, err
}
