// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// PolicyEnforcer enforces network policy on the interfaces of pods, from before an interface can send or receive a
// packet until it is down.
type PolicyEnforcer interface {
	// Admit returns once policy is enforced on the interfaces, which need not exist yet. It is called again for the same
	// key when more is known. Its error fails the ADD.
	Admit(ctx context.Context, all ...model.WorkloadEndpoint) error
	// Attached reports that ADDs are done, so that other nodes may learn the addresses. It must not block.
	Attached(keys ...model.AttachmentKey)
	// Release undoes Admit. The interface is down or gone.
	Release(ctx context.Context, key model.AttachmentKey) error
}

// Endpoint returns the record's endpoint; false if it does not belong to a pod.
func (r Record) Endpoint() (model.WorkloadEndpoint, bool) {
	e := model.WorkloadEndpoint{
		Attachment: r.Key(), IfName: r.Request.IfName, Netns: r.Request.Netns, NetnsID: r.NetnsID, Standby: r.Standby,
		Tap: r.Observed.Tap, Device: r.Observed.Device, VM: r.Request.VM() != nil,
	}
	if o := r.Request.Origin; o != nil {
		if e.Pod = o.Pod; !o.Primary {
			e.Network = o.Network
		}
	} else {
		e.Pod.Namespace, _ = r.Request.Arg("K8S_POD_NAMESPACE")
		e.Pod.Name, _ = r.Request.Arg("K8S_POD_NAME")
		e.Pod.UID, _ = r.Request.Arg("K8S_POD_UID")
	}
	if e.Pod.Name == "" || e.IfName == "lo" || plugin.IsIPAMNetwork(r.Request.Network) {
		return e, false
	}
	if e.Container = r.Request.OfContainer(); e.Container && r.Container != nil {
		e.Labels = r.Container.Labels
	}
	e.HostLink, e.HostEnd = r.hostEnd()
	e.Addrs = r.Addrs()
	return e, true
}

// makesMacvtap reports whether the record's interface is a macvtap of weft's, also before it exists.
func (r Record) makesMacvtap() bool {
	return slices.ContainsFunc(r.Fragment().Pod.Links, func(l state.Link) bool {
		return l.Name == r.Request.IfName && l.Kind == state.Macvtap
	})
}

// hostEnd returns the node's end of the record's interface: planned, or observed if a foreign plugin created it.
func (r Record) hostEnd() (link string, end model.HostEnd) {
	router, port := hostEnd(r.Fragment(), r.Request.IfName)
	switch {
	case router != "":
		return router, model.HostEndRouted
	case port != "":
		return port, model.HostEndPort
	case r.Observed.End == "":
		return "", ""
	case r.Observed.EndPort:
		return r.Observed.End, model.HostEndPort
	}
	return r.Observed.End, model.HostEndForeign
}

// HostLink returns the node's end of a routed interface; else empty.
func (r Record) HostLink() string {
	router, _ := hostEnd(r.Fragment(), r.Request.IfName)
	return router
}

// Addrs returns the addresses of the record's interface.
func (r Record) Addrs() []netip.Addr {
	if r.Result == nil {
		return nil
	}
	return ownAddrs(*r.Result, r.Request.IfName)
}

// hostEnd returns the node's end of the interface: router if it is routed, port if it is a bridge's port.
func hostEnd(f state.Fragment, ifName string) (router, port string) {
	for _, l := range f.Host.Links {
		mine := func(o state.Link) bool { return o.Name == ifName && o.Alias != "" && o.Alias == l.Alias }
		if l.Kind == state.Tap && l.Master == "" && slices.ContainsFunc(f.Pod.Links, mine) {
			return l.Name, ""
		}
		if l.Kind != state.Veth || l.Peer == nil || l.Peer.Space != state.Pod || l.Peer.Name != ifName {
			continue
		}
		if l.Master == "" {
			return l.Name, ""
		}
		return "", l.Name
	}
	return "", ""
}

// ownAddrs returns a result's addresses of the pod's interface.
func ownAddrs(r model.Result, ifName string) []netip.Addr {
	var out []netip.Addr
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(r.Interfaces) &&
			(r.Interfaces[*i].Sandbox == "" || r.Interfaces[*i].Name != ifName) {
			continue
		}
		if a := ip.Address.Addr(); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// policyHook calls the policy enforcer, if there is one, and reports changes of the attachments of virtual machines.
type policyHook struct {
	enforcer PolicyEnforcer // nil: no policy is enforced
	vms      *podVMs
	notify   func(key model.AttachmentKey) // nil: changes are not reported
	fail     failpoint.Hook
}

// of returns the record's endpoint for enforcement; false if there is none, or no policy.
func (h *policyHook) of(rec Record) (model.WorkloadEndpoint, bool) {
	if h.enforcer == nil {
		return model.WorkloadEndpoint{}, false
	}
	if rec.makesMacvtap() && !rec.Observed.Tap {
		// Rules of the family netdev need the link. A hypervisor opens it after the ADD at the earliest.
		return model.WorkloadEndpoint{}, false
	}
	e, ok := rec.Endpoint()
	e.VM = e.VM || h.vms.has(e.Attachment.ContainerID)
	return e, ok
}

// admit returns once policy is enforced on the endpoints.
func (h *policyHook) admit(ctx context.Context, added []model.WorkloadEndpoint) error {
	if len(added) == 0 {
		return nil
	}
	if err := h.fail.At("before guard"); err != nil {
		return err
	}
	if err := h.enforcer.Admit(ctx, added...); err != nil {
		return fmt.Errorf("policy of pod %s: %w", added[0].Pod, err)
	}
	return h.fail.At("after guard")
}

// attached reports that the ADDs of admitted endpoints are done.
func (h *policyHook) attached(keys []model.AttachmentKey) {
	if len(keys) > 0 {
		h.enforcer.Attached(keys...)
	}
}

// standbyChanged reports that an attachment has become active or standby.
func (h *policyHook) standbyChanged(ctx context.Context, rec Record) error {
	if h.enforcer != nil {
		if e, ok := rec.Endpoint(); ok {
			if err := h.enforcer.Admit(ctx, e); err != nil {
				return err
			}
			if !rec.Standby {
				h.enforcer.Attached(rec.Key())
			}
		}
	}
	h.vmChanged(rec)
	return nil
}

// release ends the enforcement on a record's interface, which is gone.
func (h *policyHook) release(ctx context.Context, rec Record) error {
	h.vmChanged(rec)
	if h.enforcer == nil {
		return nil
	}
	if err := h.fail.At("before unguard"); err != nil {
		return err
	}
	if err := h.enforcer.Release(ctx, rec.Key()); err != nil {
		return fmt.Errorf("policy of %s: %w", rec.Key(), err)
	}
	return h.fail.At("after unguard")
}

// vmChanged reports that an attachment of a VM was added, removed, or changed between active and standby.
func (h *policyHook) vmChanged(rec Record) {
	if h.notify != nil && (rec.Standby || rec.Request.VM() != nil || len(rec.Guests())+len(rec.Joins()) > 0) {
		h.notify(rec.Key())
	}
}
