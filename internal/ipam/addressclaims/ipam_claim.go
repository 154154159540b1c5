// SPDX-License-Identifier: Apache-2.0

package addressclaims

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// ForRanges returns the claim of an attachment with a configuration of ranges: its IPAMClaim, or its VM's claim, which it
// creates if needed. It requests the claim's addresses in s.
func (ac *Claims) ForRanges(ctx context.Context, req ipam.Request, s *poolconf.Settings) (Claim, error) {
	if s.Claim == "" {
		if len(s.Requested) > 0 || len(s.Wants) == 0 { // an explicit request wins
			return Claim{}, nil
		}
		c, err := ac.vmClaim(ctx, req)
		c.requestIn(s)
		return c, err
	}
	if err := s.CheckClaim(); err != nil {
		return Claim{}, err
	}
	o, err := ac.readIPAMClaim(ctx, s.Claim)
	if errors.Is(err, store.ErrNotFound) {
		return o, model.Errorf(model.CodeInvalidConf, "create it, or remove ipam-claim-reference from the pod's annotation",
			"IPAMClaim %s does not exist", s.Claim)
	}
	if err != nil {
		return o, err
	}
	var c claims.IPAMClaim
	if err := json.Unmarshal(o.object.Raw, &c); err != nil {
		return o, model.Errorf(model.CodeDecode, "correct the object", "IPAMClaim %s: %w", s.Claim, err)
	}
	ips, field := c.Status.IPs, "status.ips"
	if len(ips) == 0 {
		ips, field = c.Spec.IPRequests, "spec.ipRequests"
	}
	for i, text := range ips {
		a, err := ipam.ParseAddr(text)
		if err != nil {
			return o, ipam.Invalid("an address, for example 10.1.0.5/24", "IPAMClaim %s: %s[%d] %q is no address", s.Claim,
				field, i, text)
		}
		s.Requested = append(s.Requested, a)
	}
	for i := range s.Wants {
		s.Wants[i].Claim, s.Wants[i].VM, s.Wants[i].Pod = s.Claim, req.VM != nil, podOf(req)
	}
	return o, nil
}

// requestIn requests the addresses of a VM's claim in a configuration, as far as its ranges still have them.
func (c Claim) requestIn(s *poolconf.Settings) {
	s.Claim = c.ID
	for _, a := range c.Addrs {
		for i := range s.Wants {
			if w := &s.Wants[i]; !w.Addr.IsValid() && w.Network.Contains(a) && addrspan.In(w.Spans, a) {
				w.Addr, w.Claim, w.VM, w.Pod, w.Field = a, c.ID, true, c.Pod, "virtual machine "+c.VM.String()
				break
			}
		}
	}
}

// NamesAll reports whether a claim names the addresses of all wants.
func (c Claim) NamesAll(wants []poolconf.Want) bool {
	for _, w := range wants {
		if !w.Addr.IsValid() || !claims.Names(c.object, w.Addr) {
			return false
		}
	}
	return len(wants) > 0 && c.object.Version != ""
}

// Write writes addresses into the claim before they are used, for the next pod.
func (ac *Claims) Write(ctx context.Context, c Claim, ips []model.IP) error {
	if kind, _ := claims.ObjectKey(c.ID); c.ID == "" || kind == store.AddressClaims() {
		return ac.writeAddressClaim(ctx, c, ips)
	}
	o := c.object
	if err := ac.cfg.Save(); err != nil { // the claim keeps the address when the pod is deleted
		return model.Errorf(model.CodeIO, "is the file system full or read-only?", "%w", err)
	}
	next, err := o.Edited(func(fields map[string]any) error {
		status, ok := fields["status"].(map[string]any)
		if !ok {
			status = map[string]any{}
			fields["status"] = status
		}
		status["ips"] = claimIPs(ips, status["ips"])
		return nil
	})
	if err != nil || next.Version == o.Version || sameJSON(next.Raw, o.Raw) {
		return err
	}
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return ac.cfg.Objects.CompareAndSwapStatus(ctx, store.IPAMClaims(), o.Version, next)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return model.Errorf(model.CodeTryAgain, "", "IPAMClaim %s was changed meanwhile: %w", c.ID, err)
	}
	if err != nil {
		return store.Unreachable("IPAMClaim "+c.ID, err)
	}
	return nil
}

// claimIPs returns the addresses for a claim's status: those that its pod has, and then those that the claim had before.
// An agent removes none, and in Kubernetes may not: another node's token could otherwise release a VM's address.
func claimIPs(ips []model.IP, before any) []any {
	var out []any
	have := map[netip.Addr]bool{}
	for _, ip := range ips {
		out = append(out, ip.Address.String())
		have[ip.Address.Addr()] = true
	}
	old, _ := before.([]any)
	for _, v := range old {
		text, _ := v.(string)
		if a, err := ipam.ParseAddr(text); err != nil || !have[a] {
			out = append(out, v)
		}
	}
	return out
}

func sameJSON(a, b json.RawMessage) bool { return string(a) == string(b) }
