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

// check checks the delegates and the pod's further networks; it stops at the first difference.
func (vs *verbs) check(ctx context.Context, call cni.Call, ns *netns.NS) error {
	all, err := parseDelegates(vs.networks, call)
	if err != nil {
		return err
	}
	all, err = vs.without(all, call)
	if err != nil {
		return err
	}
	named, lines := map[model.AttachmentKey]bool{}, vs.logOf(call)
	for i, d := range all {
		named[d.Request.Key()] = true
		if d.Network.DisableCheck {
			continue
		}
		if err := vs.cfg.Attacher.Check(ctx, job(d, ns)); err != nil {
			return inNetwork(err, all, i)
		}
		lines.checked(d.Label, d.Network, d.Request)
	}
	rest, err := vs.otherRecords(call, named)
	if err != nil {
		return err
	}
	if len(all)+len(rest) == 0 {
		return model.Errorf(model.CodeUnknownContainer, "ADD it first", "container %s has no attachment %s",
			call.Request.ContainerID, call.Request.IfName)
	}
	for _, r := range slices.Backward(rest) {
		if r.Network.DisableCheck {
			continue
		}
		if err := vs.cfg.Attacher.Check(ctx, attach.Job{Network: r.Network, Request: r.Request, Netns: ns}); err != nil {
			return fmt.Errorf("network %s: %w", r.Request.Network, err)
		}
		lines.checked(labelOf(r.Request), r.Network, r.Request)
	}
	return nil
}

// without drops the delegates that the pod has replaced by another network.
func (vs *verbs) without(all []multinet.Attachment, call cni.Call) ([]multinet.Attachment, error) {
	keys, err := vs.cfg.Records.Keys(call.Request.ContainerID)
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
			r, ok, err := vs.cfg.Records.Get(k)
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

// ownOrMultus returns the delegates of a DEL. If the ledger has no record of the sandbox but Multus's cache has, that
// decides which networks are deleted.
func (vs *verbs) ownOrMultus(
	ctx context.Context, call cni.Call, ns *netns.NS,
) (all []multinet.Attachment, done bool, err error) {
	settings, err := multinet.ParseSettings(call, vs.networks.Root)
	if err != nil {
		return nil, false, err
	}
	keys, err := vs.cfg.Records.Keys(call.Request.ContainerID)
	if err != nil {
		return nil, false, err
	}
	if len(keys) == 0 {
		left, err := multinet.ReadCache(call, settings)
		if err != nil {
			vs.log.Warn("Multus's cache of a sandbox is not usable", "container", short(call.Request.ContainerID), "err", err)
		} else if len(left.Attachments) > 0 {
			if err := vs.detachAll(ctx, left.Attachments, ns); err != nil {
				return nil, true, err
			}
			lines := vs.logOf(call)
			for _, a := range slices.Backward(left.Attachments) {
				lines.deleted(a.Network, a.Request)
			}
			return nil, true, left.Forget()
		}
	}
	all, err = vs.networks.Delegates(call, settings)
	if err != nil {
		return nil, false, err
	}
	if len(all) > 0 && !slices.Contains(keys, all[0].Request.Key()) {
		all[0].Prev = multinet.PrevOfDel(call)
	}
	all, err = vs.without(all, call)
	return all, false, err
}

// status checks all networks of the configuration; one that is not ready is enough.
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
		all, err = vs.networks.DefaultNetworks(ctx, call)
	}
	var f *model.Error
	if errors.As(err, &f) && f.Code == model.CodeTryAgain {
		return &model.Error{Code: model.CodeNotAvailable, Msg: f.Msg, Hint: f.Hint, Err: f}
	}
	if err != nil {
		return err
	}
	for i, d := range all {
		if err := vs.cfg.Attacher.Status(ctx, job(d, nil)); err != nil {
			return inNetwork(err, all, i)
		}
	}
	return nil
}

// gc collects every network, even if others fail: the delegates first, then those that pods selected.
func (vs *verbs) gc(ctx context.Context, call cni.Call) error {
	all, err := vs.networks.DefaultNetworks(ctx, call)
	records, bad := vs.cfg.Records.List()
	if err != nil && len(records) == 0 {
		return err
	}
	errs := []error{err, bad}
	queued, disabled := vs.queue.collectable(call), false
	theirs, err := vs.multusAttachments(call)
	if err != nil {
		return err // it would release attachments that pods use
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
			errs = append(errs, inNetwork(err, all, i))
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

// multusAttachments returns, by network, the attachments of valid calls that Multus made: the ledger has no record of their
// pods' networks.
func (vs *verbs) multusAttachments(call cni.Call) (map[string][]model.AttachmentKey, error) {
	settings, err := multinet.ParseSettings(call, vs.networks.Root)
	if err != nil {
		return nil, nil // the next request for the networks reports the error
	}
	all := map[string][]model.AttachmentKey{}
	for _, v := range call.Valid {
		of := call
		of.Request.ContainerID, of.Request.IfName = v.ContainerID, v.IfName
		left, err := multinet.ReadCache(of, settings)
		if err != nil {
			return nil, fmt.Errorf("Multus's cache of sandbox %s: %w", v.ContainerID, err)
		}
		for _, a := range left.Attachments {
			all[a.Request.Network] = append(all[a.Request.Network], a.Request.Key())
		}
	}
	return all, nil
}

// outer returns the runtime's network that a record came from.
func outer(r attach.Record) string {
	network, _, _ := strings.Cut(r.Request.Part, "/")
	return network
}

// validOf returns the valid attachments of a network that pods selected: those of valid calls and of other callers.
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

// validIn maps the runtime's attachments to those of one delegate's network. Several delegates may be of one network.
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
