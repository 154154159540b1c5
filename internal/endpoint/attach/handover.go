// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// handover hands finished attachments over to a container engine that moves the interface into its container itself, as
// Docker does (CNM): the ADD was for a namespace in which nothing runs, and the interface leaves it for the node's.
//
// What is in the container belongs to the engine from then on: only the node's part of the attachment is compared and
// repaired. The node's end is down from the hand-over until the labels of the container are known and its policies are
// enforced, so nothing passes before.
type handover struct {
	host       *kernel.Conn
	namespaces *namespaces
	records    *notifyingStore
	finished   func(ctx context.Context, key model.AttachmentKey, name string, do func(Record) error) error
	hook       *policyHook
	planners   map[string]plugin.Planner
	fail       failpoint.Hook
}

// Container is the state of an attachment that was handed over.
type Container struct {
	// Link is the interface's name in the node's namespace, until the engine moves it.
	Link string `json:"link"`
	// Labels are the container's labels once they are Known.
	Labels map[string]string `json:"labels,omitempty"`
	Known  bool              `json:"known,omitempty"`
}

// MarshalJSON encodes it like any structure; see state.List.
func (c Container) MarshalJSON() ([]byte, error) {
	type plain Container
	return json.Marshal(plain(c))
}

// HandOver is a request to hand an attachment over.
type HandOver struct {
	// Link is the name that the interface gets in the node's namespace.
	Link string
	// MTU of both ends, in bytes; 0 keeps the network's.
	MTU int
	// Gateway and Gateway6 are the gateways of a routed interface, which the node's end answers for: the container has none
	// of the neighbor entries that a pod has. Gateway6 is a link-local address; invalid: the node's own.
	Gateway, Gateway6 netip.Addr
}

// HandedOver is what the engine has to configure in the container.
type HandedOver struct {
	// Gateways are those of the default routes, one for each address family of the attachment.
	Gateways []netip.Addr
	// MTU is the interface's, in bytes; 0 if it is the kernel's.
	MTU int
}

// handOver moves the interface of a finished attachment into the node's namespace. ns is the namespace of the ADD; nil:
// it is the record's. It is idempotent until the engine has moved the interface.
func (h *handover) handOver(
	ctx context.Context, key model.AttachmentKey, how HandOver, ns *netns.NS,
) (out HandedOver, err error) {
	err = h.finished(ctx, key, "hand over", func(rec Record) error {
		end, kind := rec.hostEnd()
		if !rec.Request.OfContainer() {
			return model.Errorf(model.CodeInvalidConf, "", "attachment %s is not one of a container engine", key)
		}
		if kind != model.HostEndRouted && kind != model.HostEndPort {
			return model.Errorf(model.CodeInvalidConf, "use a network of weft's own, or one of plugin bridge, calico or ptp",
				"network %q: its interface has no end on the node, at which weft could enforce policies on a container",
				key.Network)
		}
		spaces, done := h.namespaces.forDel(Job{Netns: ns}, rec)
		defer done()
		out = rec.engineSettings(how)
		if rec.Container == nil {
			rec.Container = &Container{Link: how.Link}
			rec.Acts = append(slices.Clone(rec.Acts), Act{Kind: ActApply, Fragment: rec.engineEnd(how, end, kind)})
			if err := h.records.put(rec); err != nil {
				return err
			}
			if err := h.fail.At("after record of hand-over"); err != nil {
				return err
			}
		}
		return h.move(ctx, rec, how, end, spaces)
	})
	return out, err
}

// move takes the node's end down, unless the container's labels are known, and moves the other end out.
func (h *handover) move(ctx context.Context, rec Record, how HandOver, end string, spaces kernel.Spaces) error {
	owner := plugin.Owner(rec.Key())
	host := kernel.Spaces{Host: h.host}
	if !rec.Container.Known {
		down := state.Space{Links: []state.Link{{Name: end, Up: state.Off()}}}
		if err := host.Apply(ctx, state.Fragment{Owner: owner, Host: down}); err != nil {
			return err
		}
	}
	q := state.Query{Space: state.Host, Link: rec.Container.Link}
	there, err := host.Observe(ctx, []state.Query{q})
	if err != nil || there[q].Found {
		return err
	}
	if spaces.Pod == nil {
		return model.Errorf(model.CodeUnknownContainer, "start the container again",
			"interface %q of attachment %s is gone, and so is the namespace that it was in", rec.Container.Link, rec.Key())
	}
	moved := state.Link{
		Name: rec.Container.Link, MTU: how.MTU, MovedFrom: &state.Origin{Space: state.Pod, Name: rec.Request.IfName},
	}
	// The addresses, and with them the routes, are the engine's to configure: they do not survive the move.
	if err := spaces.Apply(ctx, state.Fragment{Owner: owner, Host: state.Space{Links: []state.Link{moved}}}); err != nil {
		return err
	}
	return h.fail.At("after hand-over")
}

// engineEnd returns what the node's end has of an interface that an engine configures.
func (r Record) engineEnd(how HandOver, end string, kind model.HostEnd) *state.Fragment {
	f := state.Fragment{Owner: plugin.Owner(r.Key())}
	if how.MTU != 0 {
		f.Host.Links = append(f.Host.Links, state.Link{Name: end, MTU: how.MTU})
	}
	for _, gateway := range r.engineSettings(how).Gateways {
		if kind == model.HostEndRouted && (gateway == how.Gateway || gateway == how.Gateway6) {
			f.Host.Addrs = append(f.Host.Addrs, state.Addr{
				Link: end, Prefix: netip.PrefixFrom(gateway, gateway.BitLen()), NoPrefixRoute: true, HostScope: gateway.Is4(),
				NoDAD: gateway.Is6(),
			})
		}
	}
	return &f
}

// engineSettings returns what an engine configures in the container.
func (r Record) engineSettings(how HandOver) HandedOver {
	f := r.Fragment()
	out := HandedOver{MTU: how.MTU}
	for _, l := range f.Pod.Links {
		if l.Name == r.Request.IfName && out.MTU == 0 {
			out.MTU = l.MTU
		}
	}
	if r.Result == nil {
		return out
	}
	_, kind := r.hostEnd()
	for _, six := range []bool{false, true} {
		for _, ip := range r.Result.IPs {
			if ip.Address.Addr().Is6() != six {
				continue
			}
			gateway := ip.Gateway
			switch {
			case gateway.IsValid() || kind != model.HostEndRouted:
			case six:
				gateway = how.Gateway6
			default:
				gateway = how.Gateway
			}
			for _, n := range f.Pod.Neighs { // the node's link-local address
				if six && !gateway.IsValid() && n.Link == r.Request.IfName && n.IP.Is6() && n.IP.IsLinkLocalUnicast() {
					gateway = n.IP
				}
			}
			if gateway.IsValid() {
				out.Gateways = append(out.Gateways, gateway)
			}
			break
		}
	}
	return out
}

// setLabels enforces the policies of a container whose labels are known, and then lets packets pass. It is idempotent.
func (h *handover) setLabels(ctx context.Context, key model.AttachmentKey, labels map[string]string) error {
	return h.finished(ctx, key, "set labels", func(rec Record) error {
		if rec.Container == nil {
			return model.Errorf(model.CodeInvalidConf, "", "attachment %s was not handed over to a container engine", key)
		}
		if !rec.Container.Known || !maps.Equal(rec.Container.Labels, labels) {
			rec.Container = &Container{Link: rec.Container.Link, Labels: maps.Clone(labels), Known: true}
			if err := h.records.put(rec); err != nil {
				return err
			}
		}
		if err := h.fail.At("after record of labels"); err != nil {
			return err
		}
		if err := h.hook.standbyChanged(ctx, rec); err != nil {
			return err
		}
		host, found, err := nodePart(ctx, h.host, rec, wholeAttachment)
		if err != nil {
			return err
		}
		if !found {
			return model.Errorf(model.CodeUnknownContainer, "start the container again",
				"the node's end of attachment %s is gone", key)
		}
		return kernel.Spaces{Host: h.host}.Apply(ctx, host)
	})
}

// nodePart returns what an attachment that was handed over has on the node, without rules of iptables and firewalld;
// false if its interface is gone.
func nodePart(ctx context.Context, host *kernel.Conn, rec Record, how repairScope) (state.Fragment, bool, error) {
	f := state.Fragment{Owner: plugin.Owner(rec.Key()), Host: rec.Fragment().Host}
	f.Host.IPTables, f.Host.Sources = nil, nil
	if how == withoutRules {
		f.Host.Tables = nil
	}
	end, _ := rec.hostEnd()
	q := state.Query{Space: state.Host, Link: end}
	have, err := kernel.Spaces{Host: host}.Observe(ctx, []state.Query{q})
	if err != nil {
		return f, false, fmt.Errorf("attachment %s: %w", rec.Key(), err)
	}
	for _, l := range f.Host.Links {
		if l.Name == end {
			return f, have[q].Found && have[q].Link.Alias == l.Alias, nil
		}
	}
	return f, false, nil
}

// repairHandedOver repairs the node's part of an attachment that was handed over and whose interface exists.
func (p *repairer) repairHandedOver(ctx context.Context, rec Record, how repairScope) (bool, error) {
	want, found, err := nodePart(ctx, p.host, rec, how)
	if err != nil || !found {
		return false, err
	}
	return p.repairSpaces(ctx, rec, want, kernel.Spaces{Host: p.host})
}

// checkHandedOver checks the node's part of an attachment that was handed over. Until the labels of its container are
// known, the node's end is down, which is no difference.
func (c *checker) checkHandedOver(ctx context.Context, rec Record) (checked bool, err error) {
	if !rec.Container.Known {
		return true, nil
	}
	want, found, err := nodePart(ctx, c.host, rec, wholeAttachment)
	if err != nil {
		return true, err
	}
	if !found {
		return true, netns.ErrGone
	}
	differences, err := compare(ctx, kernel.Spaces{Host: c.host}, want)
	if err == nil && len(differences) > 0 {
		err = model.Errorf(model.CodeDiffers, "the agent repairs it", "attachment %s: %s", rec.Key(), differences[0])
	}
	return true, err
}
