// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/weft-net/weft/internal/docker/agentapi"
	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/notify"
)

// endpoints are Docker's endpoints.
type endpoints struct {
	agent       *agent
	attachments *attachments
	records     *records
	joined      notify.Chan // there may be an endpoint to open
	log         *slog.Logger
}

// createEndpoint finds the attachment by its address.
func (es *endpoints) createEndpoint(_ context.Context, q cnm.CreateEndpoint) (any, error) {
	if _, ok := es.records.network(q.NetworkID); !ok {
		return nil, unknownNetwork(q.NetworkID)
	}
	if name, is := q.Options[cnm.OptionIfName]; is {
		return nil, model.Errorf(model.CodeInvalidConf, "leave it out: Docker itself names the interfaces of drivers that are not part of it",
			"--driver-opt %s=%v is not supported", cnm.OptionIfName, name)
	}
	if q.Interface == nil {
		q.Interface = &cnm.EndpointInterface{}
	}
	text := cmp.Or(q.Interface.Address, q.Interface.AddressIPv6)
	if text == "" {
		return nil, model.Errorf(model.CodeInvalidConf, "connect it to a network with IPv4, or leave the sysctl out that disables IPv6",
			"network %s has IPv6 only, and the container has none", q.NetworkID)
	}
	a, err := parseAddr(text)
	if err != nil {
		return nil, err
	}
	e, ok, err := es.records.updateFirst(func(e endpoint) bool {
		return e.has(q.NetworkID, a) && (e.Endpoint == "" || e.Endpoint == q.EndpointID)
	}, func(e *endpoint) { e.Endpoint = q.EndpointID })
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, model.Errorf(model.CodeInvalidConf, "start the container again",
			"address %s of the endpoint is not one that the driver has allocated for it", a)
	}
	out := cnm.CreatedEndpoint{Interface: &cnm.EndpointInterface{}}
	if q.Interface.MacAddress == "" {
		out.Interface.MacAddress = e.MAC
	}
	return out, nil
}

func unknownNetwork(id string) error {
	return model.Errorf(model.CodeInvalidConf, "remove the network and create it again", "network %s is not known", id)
}

func key(e endpoint) agentapi.Key { return agentapi.Key{ContainerID: e.ID, IfName: ifName} }

// join has the agent move the interface into the node's namespace.
func (es *endpoints) join(ctx context.Context, q cnm.Join) (any, error) {
	e, err := es.records.endpoint(q.EndpointID)
	if err != nil {
		return nil, err
	}
	n, ok := es.records.network(e.Network)
	if !ok {
		return nil, unknownNetwork(e.Network)
	}
	var gateways [2]netip.Addr
	for i, id := range []string{e.Pool, e.Pool6} {
		if id == "" {
			continue
		}
		p, ok := es.records.pool(id)
		if !ok {
			return nil, unknownNetwork(e.Network)
		}
		gateways[i] = p.Gateway
	}
	path := es.attachments.nsPath(e)
	ns, err := netns.Open(path)
	if err != nil && !e.Joined {
		return nil, err
	}
	if ns != nil {
		defer func() { _ = ns.Close() }()
	}
	var out agentapi.HandedOver
	if err := es.agent.request(ctx, http.MethodPost, agentapi.RouteHandOver, agentapi.HandOver{
		Key: key(e), Link: e.link(), MTU: n.Options.MTU, Gateway: gateways[0], Gateway6: gateways[1], Netns: path,
	}, ns, &out); err != nil {
		return nil, err
	}
	if _, _, err := es.records.updateEndpoint(e.ID, func(e *endpoint) {
		e.Joined, e.Sandbox = true, q.SandboxKey
	}); err != nil {
		return nil, err
	}
	if err := netns.Remove(path); err != nil {
		return nil, err
	}
	es.joined.Notify()
	answer := joined(e, out, es.records.routes(n))
	// Then dockerd does not ask for them to be published, unless another network of the container has a gateway.
	if ports, err := published(q.Options); err == nil && len(ports) > 0 && answer.DisableGatewayService {
		es.log.Warn("ports of a container are not published by its network, which has no gateway", "endpoint", e.Endpoint,
			"network", e.Network, "ports", portList(ports))
	}
	return answer, nil
}

// joined returns what dockerd configures in the container.
func joined(e endpoint, out agentapi.HandedOver, subnets []netip.Prefix) cnm.Joined {
	j := cnm.Joined{
		InterfaceName: cnm.InterfaceName{SrcName: e.link(), DstPrefix: "eth"}, StaticRoutes: []cnm.StaticRoute{},
	}
	// Also to a link-local IPv6 gateway: dockerd looks for a route to it before the interface has the kernel's, which needs
	// a carrier and so the container's labels.
	onLink := func(gateway netip.Addr, in netip.Prefix) {
		if !in.Contains(gateway) {
			j.StaticRoutes = append(j.StaticRoutes, cnm.StaticRoute{
				Destination: netip.PrefixFrom(gateway, gateway.BitLen()).String(), RouteType: cnm.RouteConnected,
			})
		}
	}
	for _, gateway := range out.Gateways {
		switch {
		case gateway.Is4() && e.Address.IsValid():
			j.Gateway = gateway.String()
			onLink(gateway, e.Address)
		case gateway.Is6() && e.Address6.IsValid():
			j.GatewayIPv6 = gateway.String()
			onLink(gateway, e.Address6)
		}
	}
	for _, s := range subnets {
		hop := j.Gateway
		if s.Addr().Is6() {
			hop = j.GatewayIPv6
		}
		if hop != "" {
			j.StaticRoutes = append(j.StaticRoutes, cnm.StaticRoute{
				Destination: s.String(), RouteType: cnm.RouteNextHop, NextHop: hop,
			})
		}
	}
	// Without a gateway dockerd would add an interface of its bridge docker_gwbridge.
	j.DisableGatewayService = j.Gateway == "" && j.GatewayIPv6 == ""
	return j
}

// leave does nothing: the interface is back in the node's namespace, or gone with the container's.
func (es *endpoints) leave(context.Context, cnm.EndpointRequest) (any, error) { return struct{}{}, nil }

// deleteEndpoint detaches already: dockerd releases the address next, and a killed one does not.
func (es *endpoints) deleteEndpoint(_ context.Context, q cnm.EndpointRequest) (any, error) {
	e, ok := es.records.byEndpoint(q.EndpointID)
	if !ok {
		return struct{}{}, nil
	}
	return struct{}{}, es.attachments.detach(e)
}
