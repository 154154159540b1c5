// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// Guard keeps what network policy says of the interfaces of pods in the kernel. It stands there before an interface can send or
// get a packet, and until it is down.
type Guard interface {
	// Admit returns when what policy says of the interfaces stands. Nothing of them needs to exist yet. It is called again for
	// the same key when more is known. Its error is the ADD's.
	Admit(ctx context.Context, all ...Guarded) error
	// Attached says that ADDs are done: others may be told of the addresses. It returns at once.
	Attached(keys ...model.AttachmentKey)
	// Release gives up what Admit made. The interface is down or gone.
	Release(ctx context.Context, key model.AttachmentKey) error
}

// Guarded is an interface of a pod as a Guard sees it.
type Guarded struct {
	Key model.AttachmentKey
	Pod model.PodRef
	// Network is empty for the cluster's, else what people call it ("namespace/name").
	Network string
	IfName  string
	// HostLink is the node's end, by which all of the interface's packets come and go; empty where there is none: a bridge's
	// port, a macvlan …
	HostLink string
	// Port is the node's end where that is a bridge's port; Machine tells that a virtual machine may be on the pod's wire.
	Port    string
	Machine bool
	// Router is the node's end where somebody else has made it, and it is no port. A container's packets are judged in the container
	// all the same; a machine's can be judged there alone.
	Router string
	// Tap: it is a macvtap, by which a hypervisor speaks below the pod's IP.
	Tap bool
	// Device is the PCI address of what a virtual machine drives by itself: nothing sees its packets.
	Device string
	// Addrs are empty while they are not known.
	Addrs []netip.Addr
	// Standby: another interface uses the addresses; nobody is to be told of them.
	Standby bool
	// Netns is the pod's namespace, nil when nobody has it open; Path says where it is, NetnsID which one is meant.
	Netns   *netns.NS
	Path    string
	NetnsID uint64
}

// Equal reports whether both say the same of an interface.
func (g Guarded) Equal(o Guarded) bool {
	return g.Key == o.Key && g.Pod == o.Pod && g.Network == o.Network && g.IfName == o.IfName && g.HostLink == o.HostLink && g.Port == o.Port && g.Machine == o.Machine && g.Router == o.Router && g.Tap == o.Tap && g.Device == o.Device &&
		slices.Equal(g.Addrs, o.Addrs) && g.NetnsID == o.NetnsID && g.Standby == o.Standby
}

// Guarded is the record's interface; false when it is no pod's.
func (r Record) Guarded() (Guarded, bool) {
	g := Guarded{Key: r.Key(), IfName: r.Request.IfName, Path: r.Request.Netns, NetnsID: r.NetnsID, Standby: r.Standby, Tap: r.Looks.Tap, Device: r.Looks.Device}
	if o := r.Request.Origin; o != nil {
		if g.Pod = o.Pod; !o.Primary {
			g.Network = o.Network
		}
	} else {
		g.Pod.Namespace, _ = r.Request.Arg("K8S_POD_NAMESPACE")
		g.Pod.Name, _ = r.Request.Arg("K8S_POD_NAME")
		g.Pod.UID, _ = r.Request.Arg("K8S_POD_UID")
	}
	if g.Pod.Name == "" || g.IfName == "lo" || plugin.IsIPAMNetwork(r.Request.Network) {
		return g, false
	}
	g.HostLink, g.Port = hostEnd(r.Fragment(), g.IfName)
	switch {
	case g.HostLink != "" || g.Port != "":
	case r.Looks.EndPort:
		g.Port = r.Looks.End
	default:
		g.Router = r.Looks.End
	}
	g.Machine = r.Request.VM() != nil
	if r.Result != nil {
		g.Addrs = ownAddrs(*r.Result, g.IfName)
	}
	return g, true
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
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(r.Interfaces) && (r.Interfaces[*i].Sandbox == "" || r.Interfaces[*i].Name != ifName) {
			continue
		}
		if a := ip.Address.Addr(); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// policyHook has policy look after interfaces, where there is one, and tells whom attachments of virtual machines concern.
type policyHook struct {
	guard    Guard // nil: there is no policy
	machines *machinesIn
	notify   func(key model.AttachmentKey) // nil: nobody is told of machines
	fail     failpoint
}

// of is the record's interface as policy sees it; false where policy has nothing to do with it.
func (h *policyHook) of(rec Record) (Guarded, bool) {
	if h.guard == nil {
		return Guarded{}, false
	}
	g, ok := rec.Guarded()
	g.Machine = g.Machine || h.machines.has(g.Key.ContainerID)
	return g, ok
}

// admit returns when what policy says of the interfaces stands.
func (h *policyHook) admit(ctx context.Context, news []Guarded) error {
	if len(news) == 0 {
		return nil
	}
	if err := h.fail.at("before guard"); err != nil {
		return err
	}
	if err := h.guard.Admit(ctx, news...); err != nil {
		return fmt.Errorf("policy of pod %s: %w", news[0].Pod, err)
	}
	return h.fail.at("after guard")
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
		if g, ok := rec.Guarded(); ok {
			if err := h.guard.Admit(ctx, g); err != nil {
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
	if err := h.fail.at("before unguard"); err != nil {
		return err
	}
	if err := h.guard.Release(ctx, rec.Key()); err != nil {
		return fmt.Errorf("policy of %s: %w", rec.Key(), err)
	}
	return h.fail.at("after unguard")
}

// moved tells that an attachment of a machine came, went, or changed sides.
func (h *policyHook) moved(rec Record) {
	if h.notify != nil && (rec.Standby || rec.Request.VM() != nil || len(rec.Guests())+len(rec.Joins()) > 0) {
		h.notify(rec.Key())
	}
}
