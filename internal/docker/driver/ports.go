// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/docker/agentapi"
	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/model"
)

// publisher publishes ports of containers.
type publisher struct {
	agent   *agent
	records *records
	fail    failpoint.Hook
	log     *slog.Logger

	publishing sync.Mutex // held while the agent is asked to publish ports
}

// publish publishes the container's ports. dockerd asks it of the endpoint that has the container's default gateway
// only, again after a call that was cut off, and of another endpoint when the gateway changes. From version 28 on the two
// families may have gateways on two networks: it asks it of both endpoints, and says only to that for IPv4 that there is
// another one.
func (p *publisher) publish(ctx context.Context, q cnm.EndpointRequest) (any, error) {
	ports, err := published(q.Options)
	if err != nil {
		return nil, err
	}
	if len(ports) == 0 {
		return p.revoke(ctx, q)
	}
	e, err := p.records.endpoint(q.EndpointID)
	if err != nil {
		return nil, err
	}
	only4, _ := q.Options[cnm.OptionOnlyIPv4].(bool)
	for _, other := range p.records.all() {
		switch {
		case other.ID == e.ID || other.Sandbox != e.Sandbox || e.Sandbox == "" || !hasIPv4(other.Ports):
		case only4:
			if err := p.setPorts(ctx, other.ID, ofFamily(other.Ports, true)); err != nil {
				return nil, err
			}
		default: // it publishes those of IPv4
			ports = ofFamily(ports, true)
		}
	}
	if only4 {
		ports = ofFamily(ports, false)
	}
	ports, without, err := ofFamilies(ports, e.Address.IsValid(), e.Address6.IsValid())
	if err != nil {
		return nil, err
	}
	if len(without) > 0 { // another driver's network may publish them
		p.log.Warn("ports of IPv4 addresses are not published by a network of IPv6 only", "endpoint", e.Endpoint, "network", e.Network,
			"ports", portList(without))
	}
	return struct{}{}, p.setPorts(ctx, e.ID, ports)
}

// revoke revokes the published ports. dockerd calls it before the container leaves, and before another endpoint
// publishes them.
func (p *publisher) revoke(ctx context.Context, q cnm.EndpointRequest) (any, error) {
	e, ok := p.records.byEndpoint(q.EndpointID)
	if !ok || len(e.Ports) == 0 && !e.PortsPending {
		return struct{}{}, nil
	}
	return struct{}{}, p.setPorts(ctx, e.ID, nil)
}

// setPorts has the agent publish ports in place of those that an attachment has. The record is written first: what a
// killed driver has not finished, publishPending does.
func (p *publisher) setPorts(ctx context.Context, id string, ports []model.PublishedPort) error {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	e, ok, err := p.records.updateEndpoint(id, func(e *endpoint) { e.Ports, e.PortsPending = ports, true })
	if err != nil || !ok {
		return err
	}
	failed := p.finishPorts(ctx, e)
	if failed == nil || len(ports) == 0 {
		return failed // revoked later: the record has it
	}
	// The container does not start.
	if e, ok, err = p.records.updateEndpoint(id, func(e *endpoint) { e.Ports = nil }); err == nil && ok {
		err = p.finishPorts(ctx, e)
	}
	if err != nil {
		p.log.Warn("ports of a container that does not start are not revoked yet", "attachment", id, "err", err)
	}
	return p.records.namedContainer(failed)
}

// finishPorts has the agent publish the ports of a record. The caller holds publishing.
func (p *publisher) finishPorts(ctx context.Context, e endpoint) error {
	if err := p.fail.At("after record of ports"); err != nil {
		return err
	}
	var out agentapi.Published
	err := p.agent.request(ctx, http.MethodPost, agentapi.RoutePorts, agentapi.Ports{Key: key(e), Ports: e.Ports}, nil, &out)
	if err != nil {
		return err
	}
	if err := p.fail.At("after ports"); err != nil {
		return err
	}
	_, _, err = p.records.updateEndpoint(e.ID, func(e *endpoint) { e.Published, e.PortsPending = out.Ports, false })
	if err == nil && len(out.Ports) > 0 {
		p.log.Info("ports of a container are published", "attachment", e.ID, "address", e.address().Addr().String(),
			"ports", portList(out.Ports))
	}
	return err
}

// publishPending finishes what a killed driver, or one without an agent, has begun.
func (p *publisher) publishPending(ctx context.Context) {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	for _, e := range p.records.all() {
		if !e.PortsPending || !e.Joined {
			continue
		}
		if err := p.finishPorts(ctx, e); err != nil {
			p.log.Warn("ports of a container are not published or revoked yet", "attachment", e.ID, "ports", portList(e.Ports),
				"err", err)
		}
	}
}

// published returns the ports that are to be published.
func published(options map[string]any) (out []model.PublishedPort, err error) {
	raw, err := json.Marshal(options[cnm.OptionPortMap])
	if err != nil {
		return nil, fmt.Errorf("option %s: %w", cnm.OptionPortMap, err)
	}
	var all []cnm.PortBinding
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("option %s: %w", cnm.OptionPortMap, err)
	}
	protocols := map[uint8]string{6: "tcp", 17: "udp", 132: "sctp"}
	for _, b := range all {
		p := model.PublishedPort{
			Protocol: protocols[b.Proto], ContainerPort: b.Port, HostPort: b.HostPort, HostPortEnd: b.HostPortEnd,
		}
		if p.Protocol == "" {
			return nil, model.Errorf(model.CodeInvalidConf, "publish ports of tcp, udp or sctp",
				"port %d of protocol %d: unknown protocol", b.Port, b.Proto)
		}
		if p.HostPortEnd <= p.HostPort {
			p.HostPortEnd = 0
		}
		if b.HostIP != "" {
			if p.HostIP, err = parseAddr(b.HostIP); err != nil {
				return nil, err
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// hasIPv4 reports whether some of the ports are those of IPv4 addresses.
func hasIPv4(ports []model.PublishedPort) bool {
	return slices.ContainsFunc(ports, func(p model.PublishedPort) bool { return !p.HostIP.Is6() })
}

// ofFamily returns what of ports is at addresses of one family: IPv6 if six is set, else IPv4.
func ofFamily(ports []model.PublishedPort, six bool) (out []model.PublishedPort) {
	for _, p := range ports {
		switch {
		case p.HostIP.IsValid() && p.HostIP.Is6() != six:
			continue
		case !p.HostIP.IsValid() && six:
			p.HostIP = netip.IPv6Unspecified()
		case !p.HostIP.IsValid():
			p.HostIP = netip.IPv4Unspecified()
		}
		out = append(out, p)
	}
	return out
}

// ofFamilies restricts ports to the address families that a container has. without are those of IPv4 addresses if it has
// none: dockerd requests them of a network of IPv6 only, too, if the container's IPv4 gateway is on another network.
func ofFamilies(ports []model.PublishedPort, four, six bool) (of, without []model.PublishedPort, err error) {
	for _, p := range ports {
		switch {
		case p.HostIP.Is6() && !six:
			return nil, nil, model.Errorf(model.CodeInvalidConf, "create the network with --ipv6, or publish at an IPv4 address",
				"port %s: the container has no IPv6 address", p)
		case p.HostIP.Is4() && !four:
			without = append(without, p)
			continue
		case p.HostIP.IsValid() || four && six:
		case six:
			p.HostIP = netip.IPv6Unspecified()
		default:
			p.HostIP = netip.IPv4Unspecified()
		}
		of = append(of, p)
	}
	return of, without, nil
}

// portList returns ports for messages.
func portList(ports []model.PublishedPort) string {
	var out []string
	for _, p := range ports {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}
