// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
)

// check looks at what the configuration names and at what the pod has beside that; it stops at the first difference.
func (vs *verbs) check(ctx context.Context, call cni.Call, ns *netns.NS) error {
	all, err := parseDelegates(call)
	if err != nil {
		return err
	}
	all, err = vs.without(all, call)
	if err != nil {
		return err
	}
	named := map[model.AttachmentKey]bool{}
	for i, d := range all {
		named[d.Request.Key()] = true
		if d.Network.DisableCheck {
			continue
		}
		if err := vs.cfg.Attacher.Check(ctx, job(d, ns)); err != nil {
			return place(err, all, i)
		}
	}
	rest, err := vs.remembered(call, named)
	if err != nil {
		return err
	}
	if len(all)+len(rest) == 0 {
		return model.Faultf(model.CodeUnknownContainer, "ADD it first", "container %s: nothing is attached as %s",
			call.Request.ContainerID, call.Request.IfName)
	}
	for _, r := range slices.Backward(rest) {
		if r.Network.DisableCheck {
			continue
		}
		if err := vs.cfg.Attacher.Check(ctx, attach.Job{Network: r.Network, Request: r.Request, Netns: ns}); err != nil {
			return fmt.Errorf("network %s: %w", r.Request.Network, err)
		}
	}
	return nil
}

// without leaves out the delegates in whose place the pod has asked for another network.
func (vs *verbs) without(all []multinet.Attachment, call cni.Call) ([]multinet.Attachment, error) {
	keys, err := vs.cfg.Memory.Keys(call.Request.ContainerID)
	if err != nil {
		return nil, err
	}
	var kept []multinet.Attachment
	for _, d := range all {
		replaced := false
		for _, k := range keys {
			if k == d.Request.Key() {
				replaced = false
				break
			}
			if k.IfName != d.Request.IfName {
				continue
			}
			r, ok, err := vs.cfg.Memory.Get(k)
			if err != nil {
				return nil, err
			}
			replaced = replaced || ok && r.Request.Origin != nil
		}
		if !replaced {
			kept = append(kept, d)
		}
	}
	return kept, nil
}

// ownOrMultus are the delegates that a DEL is about. Where nothing is recorded of the sandbox and Multus remembers it,
// all is done by that, and done.
func (vs *verbs) ownOrMultus(
	ctx context.Context, call cni.Call, ns *netns.NS,
) (all []multinet.Attachment, done bool, err error) {
	settings, err := multinet.ParseSettings(call, vs.networks.Root)
	if err != nil {
		return nil, false, err
	}
	keys, err := vs.cfg.Memory.Keys(call.Request.ContainerID)
	if err != nil {
		return nil, false, err
	}
	if len(keys) == 0 {
		left, err := multinet.Left(call, settings)
		if err != nil {
			vs.log.Warn("what Multus remembers of a sandbox cannot be used", "id", short(call.Request.ContainerID), "err", err)
		} else if len(left.Attachments) > 0 {
			if err := vs.detachAll(ctx, left.Attachments, ns); err != nil {
				return nil, true, err
			}
			return nil, true, left.Forget()
		}
	}
	all, err = multinet.Delegates(call, settings)
	if err != nil {
		return nil, false, err
	}
	all, err = vs.without(all, call)
	return all, false, err
}

// status asks every network that pods are given; one that is not ready is enough.
func (vs *verbs) status(ctx context.Context, call cni.Call) error {
	if vs.cfg.Fit != nil {
		if err := vs.cfg.Fit(); err != nil {
			return err
		}
	}
	settings, err := multinet.ParseSettings(call, vs.networks.Root)
	if err == nil {
		err = settings.Ready()
	}
	var all []multinet.Attachment
	if err == nil {
		all, err = vs.networks.Given(ctx, call)
	}
	var f *model.Fault
	if errors.As(err, &f) && f.Code == model.CodeTryAgain {
		return &model.Fault{Code: model.CodeNotAvailable, Msg: f.Msg, Hint: f.Hint, Err: f}
	}
	if err != nil {
		return err
	}
	for i, d := range all {
		if err := vs.cfg.Attacher.Status(ctx, job(d, nil)); err != nil {
			return place(err, all, i)
		}
	}
	return nil
}

// gc cleans every network, whatever happens with the others: those that pods are given, then those that pods asked for.
func (vs *verbs) gc(ctx context.Context, call cni.Call) error {
	all, err := vs.networks.Given(ctx, call)
	records, bad := vs.cfg.Memory.List()
	if err != nil && len(records) == 0 {
		return err
	}
	errs := []error{err, bad}
	queued, disabled := vs.queue.collectable(call), false
	theirs, err := vs.ofMultus(call)
	if err != nil {
		return err // it would take away what a pod has
	}
	cleaned := map[string]bool{}
	for i, d := range all {
		disabled = disabled || d.Network.DisableGC
		if d.Network.DisableGC || cleaned[d.Network.Name] {
			continue
		}
		cleaned[d.Network.Name] = true
		valid := slices.Concat(validIn(d.Network.Name, all, call.Valid), validOf(records, d.Network.Name, call),
			theirs[d.Network.Name])
		if err := vs.cfg.Attacher.GC(ctx, job(d, nil), valid); err != nil {
			errs = append(errs, place(err, all, i))
		}
	}
	for _, r := range slices.Backward(records) {
		name := r.Request.Network
		if r.Request.Origin == nil || cleaned[name] || r.Network.DisableGC || outer(r) != call.Request.Network {
			continue
		}
		cleaned[name] = true
		request := call.Request
		request.Network = name
		valid := append(validOf(records, name, call), theirs[name]...)
		if err := vs.cfg.Attacher.GC(ctx, attach.Job{Network: r.Network, Request: request}, valid); err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", r.Request.Origin.Network, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !disabled {
		vs.queue.collect(queued)
	}
	return nil
}

// ofMultus are, by their networks, the attachments of valid calls that Multus has made: their pods asked for networks
// of which nothing is recorded here.
func (vs *verbs) ofMultus(call cni.Call) (map[string][]model.AttachmentKey, error) {
	settings, err := multinet.ParseSettings(call, vs.networks.Root)
	if err != nil {
		return nil, nil // whoever asks for the networks is told
	}
	all := map[string][]model.AttachmentKey{}
	for _, v := range call.Valid {
		of := call
		of.Request.ContainerID, of.Request.IfName = v.ContainerID, v.IfName
		left, err := multinet.Left(of, settings)
		if err != nil {
			return nil, fmt.Errorf("what Multus remembers of sandbox %s: %w", v.ContainerID, err)
		}
		for _, a := range left.Attachments {
			all[a.Request.Network] = append(all[a.Request.Network], a.Request.Key())
		}
	}
	return all, nil
}

// outer is the runtime's network that a record came from.
func outer(r attach.Record) string {
	network, _, _ := strings.Cut(r.Request.Part, "/")
	return network
}

// validOf are the attachments of a network that pods asked for and that stay: those of valid calls and of other
// callers.
func validOf(records []attach.Record, network string, call cni.Call) []model.AttachmentKey {
	var keys []model.AttachmentKey
	for _, r := range records {
		if r.Request.Origin == nil || r.Request.Network != network {
			continue
		}
		theirs := outer(r) != call.Request.Network
		_, first, _ := strings.Cut(r.Request.Part, "/")
		if theirs || slices.ContainsFunc(call.Valid, func(v model.AttachmentKey) bool {
			return v.ContainerID == r.Request.ContainerID && v.IfName == first
		}) {
			keys = append(keys, r.Key())
		}
	}
	return keys
}

// validIn turns the runtime's attachments into those of one delegate's network. Several delegates may be of one
// network.
func validIn(network string, all []multinet.Attachment, valid []model.AttachmentKey) []model.AttachmentKey {
	keys := make([]model.AttachmentKey, 0, len(valid))
	for i, d := range all {
		if d.Network.Name != network {
			continue
		}
		for _, v := range valid {
			keys = append(keys, model.AttachmentKey{
				Network: network, ContainerID: v.ContainerID, IfName: multinet.IfName(i, v.IfName),
			})
		}
	}
	return keys
}
