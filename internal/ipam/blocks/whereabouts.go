// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// flatFiles are where whereabouts looks for keys that configurations leave out.
func flatFiles(first string) []string {
	out := []string{
		"/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf", "/etc/cni/net.d/whereabouts.d/whereabouts.conf",
		"/host/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf", "/host/etc/cni/net.d/whereabouts.d/whereabouts.conf",
	}
	if first != "" {
		return append([]string{first}, out...)
	}
	return out
}

// merged is the ipam section with what the flat file adds to it. Of the file, keys count that the section does not have.
func (e *Engine) merged(section json.RawMessage) (json.RawMessage, error) {
	var head struct {
		Type string `json:"type"`
		Path string `json:"configuration_path"`
	}
	if err := ipam.Decode("ipam", section, &head); err != nil {
		return nil, err
	}
	if head.Type != TypeWhereabouts || e.cfg.ReadFile == nil {
		return section, nil
	}
	for _, path := range flatFiles(head.Path) {
		b, err := e.cfg.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, model.Faultf(model.CodeIO, "make it readable, or take it away", "whereabouts' configuration file: %w", err)
		}
		flat, fields := map[string]json.RawMessage{}, map[string]json.RawMessage{}
		if err := json.Unmarshal(b, &flat); err != nil {
			return nil, model.Faultf(model.CodeDecode, "put the file right", "whereabouts' configuration file %s: %w", path, err)
		}
		if err := ipam.Decode("ipam", section, &fields); err != nil {
			return nil, err
		}
		for k, v := range flat {
			if _, has := fields[k]; !has {
				fields[k] = v
			}
		}
		return json.Marshal(fields)
	}
	return section, nil
}

// dropForeign has the reservation of an attachment forgotten that another program made: one that no record tells of. It is
// done behind the answer.
func (e *Engine) dropForeign(ask ipam.Ask) {
	if len(ask.Held) > 0 {
		return
	}
	s, err := e.settings(ipam.Ask{Conf: ask.Conf})
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range s.wants {
		p := e.pool(w.pool)
		p.dropped = append(p.dropped, ask.Key())
		e.wake()
	}
}

// unreserve takes the reservations of deleted attachments out of the pool. The caller has the pool's turn.
func (e *Engine) unreserve(ctx context.Context, p *pool) error {
	e.mu.Lock()
	dropped := p.dropped
	e.mu.Unlock()
	if len(dropped) == 0 {
		return nil
	}
	if e.cfg.Apart { // the controller finds that the pods are gone
		e.mu.Lock()
		p.dropped = p.dropped[len(dropped):]
		e.mu.Unlock()
		return nil
	}
	if err := e.readPool(ctx, p); err != nil {
		return err
	}
	e.mu.Lock()
	o, spec := p.object, p.spec
	e.mu.Unlock()
	gone := func(r model.ReservedAddress) bool {
		return r.By != "" && slices.ContainsFunc(dropped, func(k model.AttachmentKey) bool {
			return r.ContainerID == k.ContainerID && r.IfName == k.IfName
		})
	}
	if o.Version != "" && slices.ContainsFunc(spec.Reserved, gone) {
		spec.Reserved = slices.DeleteFunc(slices.Clone(spec.Reserved), gone)
		next, err := store.AddressPoolObject(o, spec)
		if err != nil {
			return err
		}
		got, err := asking(ctx, func(ctx context.Context) (store.Object, error) {
			return e.cfg.Objects.CompareAndSwap(ctx, store.AddressPools(), o.Version, next)
		})
		if err != nil {
			e.wake()
			return ignoreConflict(unreachable("pool "+p.name, err))
		}
		e.mu.Lock()
		e.see(p, got, spec)
		e.mu.Unlock()
	}
	e.mu.Lock()
	p.dropped = p.dropped[len(dropped):]
	e.mu.Unlock()
	return nil
}
