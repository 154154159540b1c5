// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// claimLook is how often a claim that nobody uses is looked for.
const claimLook = time.Minute

// claimed reads the attachment's IPAMClaim, or what is promised to its virtual machine: the addresses that it has are
// requested.
func (ac *addressClaims) claimed(ctx context.Context, ask ipam.Ask, s *settings) (addressClaim, error) {
	if s.claim == "" {
		if len(s.requested) > 0 || len(s.wants) == 0 { // people have the last word
			return addressClaim{}, nil
		}
		c, err := ac.machineClaim(ctx, ask)
		s.promised(c)
		return c, err
	}
	if err := s.checkClaim(); err != nil {
		return addressClaim{}, err
	}
	o, err := ac.readIPAMClaim(ctx, s.claim)
	if errors.Is(err, store.ErrNotFound) {
		return o, model.Faultf(model.CodeInvalidConf, "make it, or take ipam-claim-reference out of the pod's annotation",
			"IPAMClaim %s does not exist", s.claim)
	}
	if err != nil {
		return o, err
	}
	var c claims.IPAMClaim
	if err := json.Unmarshal(o.object.Raw, &c); err != nil {
		return o, model.Faultf(model.CodeDecode, "put the object right", "IPAMClaim %s: %w", s.claim, err)
	}
	ips, field := c.Status.IPs, "status.ips"
	if len(ips) == 0 {
		ips, field = c.Spec.IPRequests, "spec.ipRequests"
	}
	for i, text := range ips {
		a, err := ipam.ParseAddr(text)
		if err != nil {
			return o, ipam.Invalid("an address, for example 10.1.0.5/24", "IPAMClaim %s: %s[%d] %q is no address", s.claim,
				field, i, text)
		}
		s.requested = append(s.requested, a)
	}
	for i := range s.wants {
		s.wants[i].claim, s.wants[i].machine, s.wants[i].pod = s.claim, ask.VM != nil, podOf(ask)
	}
	return o, nil
}

// promised requests what is promised to a virtual machine, as far as the ranges have it still.
func (s *settings) promised(c addressClaim) {
	s.claim = c.id
	for _, a := range c.addrs {
		for i := range s.wants {
			if w := &s.wants[i]; !w.addr.IsValid() && w.network.Contains(a) && inSpans(w.spans, a) {
				w.addr, w.claim, w.machine, w.pod, w.field = a, c.id, true, c.pod, "virtual machine "+c.machine.String()
				break
			}
		}
	}
}

// said tells whether a claim has all addresses that are wanted.
func (s *settings) said(claim store.Object) bool {
	for _, w := range s.wants {
		if !w.addr.IsValid() || !claims.Says(claim, w.addr) {
			return false
		}
	}
	return len(s.wants) > 0 && claim.Version != ""
}

// keepClaim writes the addresses into the claim, before anybody uses them: the claim is what tells the next pod.
func (ac *addressClaims) keepClaim(ctx context.Context, c addressClaim, ips []model.IP) error {
	if kind, _ := claims.Place(c.id); c.id == "" || kind == store.AddressClaims() {
		return ac.writeClaim(ctx, c, ips)
	}
	o := c.object
	if err := ac.journal.save(); err != nil { // the address stays the claim's when the pod has gone
		return model.Faultf(model.CodeIO, "is the file system full or read-only?", "%w", err)
	}
	var words []any
	for _, ip := range ips {
		words = append(words, ip.Address.String())
	}
	next, err := o.Edited(func(fields map[string]any) error {
		status, ok := fields["status"].(map[string]any)
		if !ok {
			status = map[string]any{}
			fields["status"] = status
		}
		status["ips"] = words
		return nil
	})
	if err != nil || next.Version == o.Version || sameJSON(next.Raw, o.Raw) {
		return err
	}
	_, err = store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.CompareAndSwapStatus(ctx, store.IPAMClaims(), o.Version, next)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return model.Faultf(model.CodeTryAgain, "", "IPAMClaim %s was changed meanwhile: %w", c.id, err)
	}
	if err != nil {
		return store.Unreachable("IPAMClaim "+c.id, err)
	}
	return nil
}

func sameJSON(a, b json.RawMessage) bool { return string(a) == string(b) }
