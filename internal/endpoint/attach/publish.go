// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// Published are the ports of the node that an act maps to a container. A container engine requests and revokes them
// after the ADD.
type Published struct {
	// Requested are the ports as the engine requested them, Ports those that were chosen for them, in the same order.
	Requested []model.PublishedPort `json:"requested,omitempty"`
	Ports     []model.PublishedPort `json:"ports,omitempty"`
	// Tables are the shared tables, without elements, of ports that were revoked: the undo of the record removes them
	// unless others use them.
	Tables []state.Table `json:"tables,omitempty"`
}

// MarshalJSON encodes it like any structure; see state.List.
func (p Published) MarshalJSON() ([]byte, error) {
	type plain Published
	return json.Marshal(plain(p))
}

// The ports that are chosen from for a container that requests any: the dynamic ports of RFC 6335.
const (
	dynamicFirst = 49152
	dynamicLast  = 65535
)

// portmapType is the plugin that maps ports of the node.
const portmapType = "portmap"

// PublishedPorts returns the ports of the node that lead to the container.
func (r Record) PublishedPorts() []model.PublishedPort {
	if i := r.publishedAct(); i >= 0 {
		return r.Acts[i].Published.Ports
	}
	return nil
}

// publishedAct returns the index of the act that maps ports of the node, -1 if there is none.
func (r Record) publishedAct() int {
	return slices.IndexFunc(r.Acts, func(a Act) bool { return a.Published != nil })
}

// withoutPublished returns the record without that act, in a slice of its own.
func (r Record) withoutPublished() Record {
	r.Acts = slices.DeleteFunc(slices.Clone(r.Acts), func(a Act) bool { return a.Published != nil })
	return r
}

// publish maps ports of the node to the container of an attachment that was handed over, in place of those that are
// mapped already, and returns them with the ports that were chosen. It is idempotent: the same request keeps the choice.
func (h *handover) publish(
	ctx context.Context, key model.AttachmentKey, ports []model.PublishedPort,
) (out []model.PublishedPort, err error) {
	err = h.finished(ctx, key, "publish", func(rec Record) error {
		if rec.Container == nil {
			return model.Errorf(model.CodeInvalidConf, "", "attachment %s was not handed over to a container engine", key)
		}
		var chosen []model.PublishedPort
		if i := rec.publishedAct(); i >= 0 {
			if have := rec.Acts[i].Published; slices.Equal(have.Requested, ports) {
				chosen = have.Ports
			} else if rec, err = h.revoke(ctx, rec, ports); err != nil {
				return err
			}
		}
		if len(ports) == 0 {
			return nil
		}
		out, err = h.mapPorts(ctx, rec, ports, chosen)
		return err
	})
	return out, err
}

// mapPorts maps ports. chosen are those that the record has for the request already, if any.
func (h *handover) mapPorts(
	ctx context.Context, rec Record, ports, chosen []model.PublishedPort,
) (_ []model.PublishedPort, err error) {
	for taken := map[hostPort]error{}; ; chosen = nil {
		if chosen == nil {
			if chosen, err = choosePorts(rec.Key(), ports, taken); err != nil {
				return nil, err
			}
		}
		f, err := h.planPorts(ctx, rec, chosen)
		if err != nil {
			return nil, err
		}
		rec = rec.withoutPublished()
		rec.Acts = append(rec.Acts, Act{
			Kind: ActApply, Fragment: &f, Published: &Published{Requested: slices.Clone(ports), Ports: chosen},
		})
		if err := h.records.put(rec); err != nil {
			return nil, err
		}
		if err := h.fail.At("after record of ports"); err != nil {
			return nil, err
		}
		err = (kernel.Spaces{Host: h.host}).Apply(ctx, f)
		if err == nil {
			return chosen, h.fail.At("after ports")
		}
		undo, cancel := detached(ctx)
		reverted, failed := h.revoke(undo, rec, nil)
		cancel()
		rec = reverted
		at, ok := takenPort(err)
		if err = applyError(err, rec.Request.Network, f); failed != nil {
			return nil, errors.Join(err, failed)
		}
		if !ok || !slices.ContainsFunc(ports, func(p model.PublishedPort) bool { return at.choosable(p) }) {
			return nil, err
		}
		taken[at] = err
	}
}

// planPorts plans the mapping as the plugin portmap of the network's list does, or as one with the defaults.
func (h *handover) planPorts(ctx context.Context, rec Record, ports []model.PublishedPort) (state.Fragment, error) {
	conf, err := portmapOf(rec.Network, ports)
	if err != nil {
		return state.Fragment{}, err
	}
	p := h.planners[portmapType]
	if p == nil {
		return state.Fragment{}, model.Errorf(model.CodeInternal, "", "plugin %s is not built in", portmapType)
	}
	in := plugin.Input{Conf: conf, Request: rec.Request, Chain: plugin.Chain{
		Prev: rec.Result, Fragment: rec.withoutPublished().Fragment(),
	}}
	queries, err := p.Observe(in)
	if err != nil {
		return state.Fragment{}, err
	}
	if in.Answers, err = (kernel.Spaces{Host: h.host}).Observe(ctx, queries); err != nil {
		return state.Fragment{}, err
	}
	step, err := p.Plan(in)
	return step.Fragment, err
}

// portmapOf returns the configuration of portmap with the mappings.
func portmapOf(n model.Network, ports []model.PublishedPort) (model.PluginConf, error) {
	conf := model.PluginConf{Type: portmapType, Raw: []byte(`{}`)}
	if i := slices.IndexFunc(n.Plugins, func(c model.PluginConf) bool { return c.Type == portmapType }); i >= 0 {
		conf = n.Plugins[i]
	}
	all := map[string]any{}
	if err := json.Unmarshal(conf.Raw, &all); err != nil {
		return conf, model.Errorf(model.CodeDecode, "", "plugin %s: %w", portmapType, err)
	}
	mappings := []map[string]any{}
	for _, p := range ports {
		m := map[string]any{"hostPort": p.HostPort, "containerPort": p.ContainerPort, "protocol": p.Protocol}
		if p.HostIP.IsValid() {
			m["hostIP"] = p.HostIP.String()
		}
		mappings = append(mappings, m)
	}
	all["type"], all["runtimeConfig"] = portmapType, map[string]any{"portMappings": mappings}
	raw, err := json.Marshal(all)
	if err != nil {
		return conf, fmt.Errorf("plugin %s: %w", portmapType, err)
	}
	conf.Raw = raw
	return conf, nil
}

// revoke removes the mappings of a record, and ends the connections to those ports that are not requested again. It is
// idempotent.
func (h *handover) revoke(ctx context.Context, rec Record, again []model.PublishedPort) (Record, error) {
	i := rec.publishedAct()
	if i < 0 || len(rec.Acts[i].Published.Requested) == 0 {
		return rec, nil
	}
	f := *rec.Acts[i].Fragment
	f.Effects = rec.Acts[i].Published.flushes(f.Effects, again)
	spaces := kernel.Spaces{Host: h.host}
	// Before the rule goes that keeps packets from the link to 127.0.0.0/8 out. A link that is gone has no setting.
	if reset := localnetReset(f); !reset.Host.Empty() {
		if _, found, err := nodePart(ctx, h.host, rec, withoutRules); err != nil {
			return rec, err
		} else if found {
			if err := spaces.Apply(ctx, reset); err != nil {
				return rec, err
			}
		}
	}
	if err := spaces.Remove(ctx, f); err != nil {
		return rec, err
	}
	if err := h.fail.At("after ports were revoked"); err != nil {
		return rec, err
	}
	rec.Acts = slices.Clone(rec.Acts)
	rec.Acts[i] = Act{
		Kind: ActApply, Fragment: &state.Fragment{Owner: f.Owner}, Published: &Published{Tables: emptyTables(f)},
	}
	return rec, h.records.put(rec)
}

// flushes returns effects that flush connections to the published ports which are not requested again, in place of those
// that flush all connections to the container: its other connections continue.
func (p Published) flushes(all []state.Effect, again []model.PublishedPort) []state.Effect {
	out := slices.Clone(all)
	for i, e := range out {
		if e.Kind != state.FlushConntrack || e.When != state.OnRemove {
			continue
		}
		out[i].Flows = nil
		for _, to := range e.Flows {
			for j, port := range p.Ports {
				anyHost := !port.HostIP.IsValid() || port.HostIP.IsUnspecified()
				if port.HostIP.IsValid() && port.HostIP.Is6() != to.IPv6 || slices.Contains(again, p.Requested[j]) {
					continue
				}
				flow := state.Flow{IPv6: to.IPv6, Proto: port.Protocol, Port: port.HostPort, ReplySrc: to.ReplySrc}
				if !anyHost {
					flow.Dst = port.HostIP
				}
				out[i].Flows = append(out[i].Flows, flow)
			}
		}
	}
	return out
}

// localnetReset returns the setting of the links that other attachments do not share which leads packets from
// 127.0.0.0/8 to them, as it was before ports were mapped.
func localnetReset(f state.Fragment) state.Fragment {
	reset := state.Fragment{Owner: f.Owner}
	for _, s := range f.Host.Sysctls {
		link, ok := strings.CutSuffix(strings.TrimPrefix(s.Name, "net/ipv4/conf/"), "/route_localnet")
		if ok && !sharesLocalnet(f, link) {
			reset.Host.Sysctls = append(reset.Host.Sysctls, state.Sysctl{Name: s.Name, Value: "0"})
		}
	}
	return reset
}

// sharesLocalnet reports whether the rule that keeps packets from a link to 127.0.0.0/8 out is shared.
func sharesLocalnet(f state.Fragment, link string) bool {
	for _, t := range f.Host.Tables {
		for _, s := range t.Sets {
			if slices.ContainsFunc(s.Elements, func(e state.Element) bool {
				return e.Shared && len(e.Key) == 1 && e.Key[0] == strconv.Quote(link)
			}) {
				return true
			}
		}
	}
	return false
}

// emptyTables returns a fragment's shared tables without elements.
func emptyTables(f state.Fragment) []state.Table {
	tables := sharedTables(f)
	for i := range tables {
		tables[i].Sets = slices.Clone(tables[i].Sets)
		for j := range tables[i].Sets {
			tables[i].Sets[j].Elements = nil
		}
	}
	return tables
}

// hostPort is a port of the node.
type hostPort struct {
	protocol string
	port     uint16
}

// takenPort returns the port of the node that another attachment has, from an error of applying.
func takenPort(err error) (hostPort, bool) {
	var taken *kernel.Taken
	if !errors.As(err, &taken) {
		return hostPort{}, false
	}
	if _, ok := plugin.TakenPort(taken.Table, taken.Key); !ok {
		return hostPort{}, false
	}
	port, err := strconv.ParseUint(taken.Key[len(taken.Key)-1], 10, 16)
	return hostPort{taken.Key[len(taken.Key)-2], uint16(port)}, err == nil
}

// choosable reports whether the port could be chosen for p, and others as well.
func (h hostPort) choosable(p model.PublishedPort) bool {
	return p.Protocol == h.protocol && (p.HostPort == 0 || p.HostPortEnd > p.HostPort && p.HostPort <= h.port && h.port <= p.HostPortEnd)
}

// choosePorts chooses a port of the node for each request: one at which no process of the node listens, and that is not
// taken.
func choosePorts(
	key model.AttachmentKey, ports []model.PublishedPort, taken map[hostPort]error,
) ([]model.PublishedPort, error) {
	out := slices.Clone(ports)
	used := map[hostPort]bool{}
	for i, p := range ports {
		first, n, start := int(p.HostPort), 1+max(0, int(p.HostPortEnd)-int(p.HostPort)), 0
		if first == 0 { // begin where others do not
			first, n = dynamicFirst, dynamicLast-dynamicFirst+1
			sum := fnv.New32a()
			fmt.Fprint(sum, key, i)
			start = int(sum.Sum32() % uint32(n))
		}
		var err error
		for j := range n {
			at := hostPort{p.Protocol, uint16(first + (start+j)%n)}
			out[i].HostPort, out[i].HostPortEnd = at.port, 0
			switch {
			case n > 1 && used[at]:
				err = model.Errorf(model.CodeInUse, "", "hostPort %d/%s is another one of the container's", at.port, p.Protocol)
			case taken[at] != nil:
				err = taken[at]
			default:
				err = listenable(out[i])
			}
			if err == nil {
				used[at] = true
			}
			if err == nil || errors.Is(err, syscall.EADDRNOTAVAIL) {
				break
			}
		}
		switch {
		case err == nil:
		case n > 1 && !errors.Is(err, syscall.EADDRNOTAVAIL):
			return nil, model.Errorf(model.CodeInUse, "choose another range", "hostPort %d-%d/%s: none is free: %w", first,
				first+n-1, p.Protocol, err)
		default:
			return nil, err
		}
	}
	return out, nil
}

// listenable returns an error if a process of the node listens at a port, or the node does not have the address.
func listenable(p model.PublishedPort) (err error) {
	network, host := p.Protocol, ""
	if p.HostIP.IsValid() {
		host = p.HostIP.String()
		if network += "4"; p.HostIP.Is6() {
			network = p.Protocol + "6"
		}
	}
	at := net.JoinHostPort(host, strconv.Itoa(int(p.HostPort)))
	switch p.Protocol {
	case "tcp":
		var l net.Listener
		if l, err = net.Listen(network, at); err == nil {
			err = l.Close()
		}
	case "udp":
		var c net.PacketConn
		if c, err = net.ListenPacket(network, at); err == nil {
			err = c.Close()
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return model.Errorf(model.CodeInUse, "choose another, or end that process",
			"hostPort %d/%s is taken by a process of the node", p.HostPort, p.Protocol)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return model.Errorf(model.CodeInvalidConf, "use one of the node's, or leave it out for all of them",
			"hostIP %s: the node has no such address: %w", p.HostIP, syscall.EADDRNOTAVAIL)
	case err != nil:
		return fmt.Errorf("hostPort %d/%s: %w", p.HostPort, p.Protocol, err)
	}
	return nil
}
