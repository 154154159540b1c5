// SPDX-License-Identifier: Apache-2.0

// Package containers is the agent's part of containers without a Pod object, such as Docker's: it hands their
// attachments over to the engine, and has policies enforced by the labels that the engine's driver reports.
package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/docker/agentapi"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// Records lists the attachments of this node.
type Records interface {
	List() ([]attach.Record, error)
	Keys(container string) ([]model.AttachmentKey, error)
}

// Attachments hands attachments over.
type Attachments interface {
	HandOver(
		ctx context.Context, key model.AttachmentKey, how attach.HandOver, ns *netns.NS,
	) (attach.HandedOver, error)
	SetLabels(ctx context.Context, key model.AttachmentKey, labels map[string]string) error
	Publish(
		ctx context.Context, key model.AttachmentKey, ports []model.PublishedPort,
	) ([]model.PublishedPort, error)
}

// Networks reads NetworkAttachmentDefinitions. The error wraps store.ErrNotFound if there is none.
type Networks interface {
	Network(ctx context.Context, namespace, name string) (model.NetworkAttachment, error)
}

// Server serves the routes of agentapi.
type Server struct {
	Records     Records
	Attachments Attachments
	// Pools returns the ranges of the cluster's network.
	Pools func() []agentapi.Pool
	// Networks reads NetworkAttachmentDefinitions; nil: there is no cluster.
	Networks Networks
	// Event, which may be nil, creates an event on the node. It must not block.
	Event func(ctx context.Context, e model.Event) error
	Log   *slog.Logger
}

// eventLabelsUnknown is the reason of the event about a container that nothing passes.
const eventLabelsUnknown = "ContainerLabelsUnknown"

// Routes returns the handlers.
func (s Server) Routes() adminapi.Routes {
	return adminapi.Routes{
		"POST " + agentapi.RouteHandOver: s.handOver,
		"POST " + agentapi.RouteLabels:   s.labels,
		"POST " + agentapi.RoutePorts:    s.ports,
		"POST " + agentapi.RouteClosed:   s.closed,
		"GET " + agentapi.RouteList:      s.list,
		"GET " + agentapi.RouteNetwork:   s.network,
		"GET " + agentapi.RoutePools: func(*http.Request) (any, error) {
			return append([]agentapi.Pool{}, s.Pools()...), nil
		},
	}
}

func (s Server) handOver(r *http.Request) (any, error) {
	var q agentapi.HandOver
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	ns, err := adminapi.Namespace(r, q.Netns)
	if err != nil {
		return nil, err
	}
	if ns != nil {
		defer func() { _ = ns.Close() }()
	}
	if q.Link == "" || q.Gateway.IsValid() && !q.Gateway.Is4() || q.MTU < 0 ||
		q.Gateway6.IsValid() && (!q.Gateway6.Is6() || !q.Gateway6.IsLinkLocalUnicast()) {
		return nil, model.Errorf(model.CodeInvalidConf, "", "hand-over: link %q, gateways %s and %s, mtu %d: invalid", q.Link,
			q.Gateway, q.Gateway6, q.MTU)
	}
	key, err := s.find(q.Key)
	if err != nil {
		return nil, err
	}
	how := attach.HandOver{Link: q.Link, MTU: q.MTU, Gateway: q.Gateway, Gateway6: q.Gateway6}
	out, err := s.Attachments.HandOver(r.Context(), key, how, ns)
	return agentapi.HandedOver{Gateways: out.Gateways, MTU: out.MTU}, err
}

func (s Server) labels(r *http.Request) (any, error) {
	var q agentapi.Labels
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	key, err := s.find(q.Key)
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.Attachments.SetLabels(r.Context(), key, q.Labels)
}

// closed logs why nothing passes the interface of a container, and creates an event: the container has no Pod object that
// could have one.
func (s Server) closed(r *http.Request) (any, error) {
	var q agentapi.Closed
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	key, err := s.find(q.Key)
	if err != nil {
		return nil, err
	}
	s.Log.Warn("labels of a container are not known; nothing passes its interface until they are", "attachment",
		key.String(), "address", q.Address.String(), "err", q.Reason)
	if s.Event == nil {
		return struct{}{}, nil
	}
	return struct{}{}, s.Event(r.Context(), model.Event{
		Warning: true, Reason: eventLabelsUnknown, Message: fmt.Sprintf(
			"container %s at %s: nothing passes its interface, because its labels are not known: %s", key.ContainerID, q.Address,
			q.Reason),
	})
}

func (s Server) ports(r *http.Request) (any, error) {
	var q agentapi.Ports
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	key, err := s.find(q.Key)
	if err != nil {
		return nil, err
	}
	ports, err := s.Attachments.Publish(r.Context(), key, q.Ports)
	return agentapi.Published{Ports: ports}, err
}

// list lists the attachments of containers that are finished.
func (s Server) list(*http.Request) (any, error) {
	records, err := s.Records.List()
	all := []agentapi.Attachment{}
	for _, r := range records {
		engine, _ := r.Request.Arg(model.ContainerArg)
		if engine == "" || r.Stage != attach.Done {
			continue
		}
		a := agentapi.Attachment{
			Key: agentapi.Key{
				Network: r.Request.Network, ContainerID: r.Request.ContainerID, IfName: r.Request.IfName,
			},
			Engine: engine, HandedOver: r.Container != nil, LabelsKnown: r.Container != nil && r.Container.Known,
			Ports: r.PublishedPorts(),
		}
		if r.Result != nil {
			for _, ip := range r.Result.IPs {
				a.Addresses = append(a.Addresses, ip.Address)
			}
		}
		all = append(all, a)
	}
	return all, err
}

// network returns an error unless a NetworkAttachmentDefinition exists.
func (s Server) network(r *http.Request) (any, error) {
	namespace, name := r.URL.Query().Get("namespace"), r.URL.Query().Get("name")
	if s.Networks == nil {
		return nil, model.Errorf(model.CodeInvalidConf, "leave it out", "network %s/%s: the agent has no cluster", namespace, name)
	}
	_, err := s.Networks.Network(r.Context(), namespace, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, model.Errorf(model.CodeInvalidConf, "create one with `kubectl apply`, or correct the name",
			"network %s/%s: there is no NetworkAttachmentDefinition %s in namespace %s", namespace, name, name, namespace)
	}
	return struct{}{}, err
}

// find returns the key of an attachment that may lack its network.
func (s Server) find(k agentapi.Key) (model.AttachmentKey, error) {
	keys, err := s.Records.Keys(k.ContainerID)
	if err != nil {
		return model.AttachmentKey{}, err
	}
	for _, have := range keys {
		if have.IfName == k.IfName && (k.Network == "" || k.Network == have.Network) {
			return have, nil
		}
	}
	return model.AttachmentKey{}, model.Errorf(model.CodeUnknownContainer, "start the container again",
		"container %s has no attachment %s", k.ContainerID, k.IfName)
}

// decode decodes a request, which is small.
func decode(r *http.Request, into any) error {
	const most = 1 << 20
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, most)).Decode(into); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	return nil
}
