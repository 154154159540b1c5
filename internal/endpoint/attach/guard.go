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

// Guard keeps what network policy says of the interfaces of pods in the kernel. It stands there before an interface can
// send or get a packet, and until it is down.
type Guard interface {
	// Admit returns when what policy says of the interfaces stands. Nothing of them needs to exist yet. It is called again
	// for the same key when more is known. Its error is the ADD's.
	Admit(ctx context.Context, all ...model.WorkloadEndpoint) error
	// Attached says that ADDs are done: others may be told of the addresses. It returns at once.
	Attached(keys ...model.AttachmentKey)
	// Release gives up what Admit made. The interface is down or gone.
	Release(ctx context.Context, key model.AttachmentKey) error
}

// Endpoint is the record's interface; false when it is no pod's.
func (r Record) Endpoint() (model.WorkloadEndpoint, bool) {
	e := model.WorkloadEndpoint{
		Attachment: r.Key(), IfName: r.Request.IfName, Netns: r.Request.Netns, NetnsID: r.NetnsID, Standby: r.Standby,
		Tap: r.Looks.Tap, Device: r.Looks.Device, VM: r.Request.VM() != nil,
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
	e.HostLink, e.HostEnd = r.hostEnd()
	e.Addrs = r.Addrs()
	return e, true
}

// hostEnd is the node's end of the record's interface: one that a plan has made, or what was seen of one that a plugin
// has made.
func (r Record) hostEnd() (link string, end model.HostEnd) {
	router, port := hostEnd(r.Fragment(), r.Request.IfName)
	switch {
	case router != "":
		return router, model.HostEndRouted
	case port != "":
		return port, model.HostEndPort
	case r.Looks.End == "":
		return "", ""
	case r.Looks.EndPort:
		return r.Looks.End, model.HostEndPort
	}
	return r.Looks.End, model.HostEndForeign
}

// HostLink is the node's end of the record's interface, where that is a router for it; else empty.
func (r Record) HostLink() string {
	router, _ := hostEnd(r.Fragment(), r.Request.IfName)
	return router
}

// Addrs are the addresses of the record's interface.
func (r Record) Addrs() []netip.Addr {
	if r.Result == nil {
		return nil
	}
	return ownAddrs(*r.Result, r.Request.IfName)
}

// hostEnd is the node's end of the interface: its router for it, or a port of a bridge.
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

// ownAddrs are the addresses of a result that are the pod's on that interface.
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

// policyHook has policy look after interfaces, where there is one, and tells whom attachments of virtual machines
// concern.
type policyHook struct {
	guard    Guard // nil: there is no policy
	machines *machinesIn
	notify   func(key model.AttachmentKey) // nil: nobody is told of machines
	fail     failpoint.Hook
}

// of is the record's endpoint, for policies to be enforced on; false where there is none, or no policy.
func (h *policyHook) of(rec Record) (model.WorkloadEndpoint, bool) {
	if h.guard == nil {
		return model.WorkloadEndpoint{}, false
	}
	e, ok := rec.Endpoint()
	e.VM = e.VM || h.machines.has(e.Attachment.ContainerID)
	return e, ok
}

// admit returns when what policy says of the interfaces stands.
func (h *policyHook) admit(ctx context.Context, news []model.WorkloadEndpoint) error {
	if len(news) == 0 {
		return nil
	}
	if err := h.fail.At("before guard"); err != nil {
		return err
	}
	if err := h.guard.Admit(ctx, news...); err != nil {
		return fmt.Errorf("policy of pod %s: %w", news[0].Pod, err)
	}
	return h.fail.At("after guard")
}

// attached says that the ADDs of interfaces are done that were admitted.
func (h *policyHook) attached(keys []model.AttachmentKey) {
	if len(keys) > 0 {
		h.guard.Attached(keys...)
	}
}

// turned says that a record has begun or ended to stand by.
func (h *policyHook) turned(ctx context.Context, rec Record) error {
	if h.guard != nil {
		if e, ok := rec.Endpoint(); ok {
			if err := h.guard.Admit(ctx, e); err != nil {
				return err
			}
			if !rec.Standby {
				h.guard.Attached(rec.Key())
			}
		}
	}
	h.moved(rec)
	return nil
}

// release tells the guard that nothing is left of a record's interface.
func (h *policyHook) release(ctx context.Context, rec Record) error {
	h.moved(rec)
	if h.guard == nil {
		return nil
	}
	if err := h.fail.At("before unguard"); err != nil {
		return err
	}
	if err := h.guard.Release(ctx, rec.Key()); err != nil {
		return fmt.Errorf("policy of %s: %w", rec.Key(), err)
	}
	return h.fail.At("after unguard")
}

// moved tells that an attachment of a machine came, went, or changed sides.
func (h *policyHook) moved(rec Record) {
	if h.notify != nil && (rec.Standby || rec.Request.VM() != nil || len(rec.Guests())+len(rec.Joins()) > 0) {
		h.notify(rec.Key())
	}
}
