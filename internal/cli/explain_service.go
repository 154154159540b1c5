// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
)

// service are the fields of a Service that decide where its packets go.
type service struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct {
		ClusterIPs            []string
		InternalTrafficPolicy string
		ExternalTrafficPolicy string
		Ports                 []struct {
			Name     string
			Port     uint16
			NodePort uint16
			Protocol string
		}
	}
}

func (s service) name() string { return s.Metadata.Namespace + "/" + s.Metadata.Name }

// endpoint are the fields of an endpoint of an EndpointSlice.
type endpoint struct {
	Addresses  []string
	Conditions struct{ Ready *bool }
	NodeName   string
}

// address returns its address; it is invalid if the endpoint is not ready.
func (e endpoint) address() netip.Addr {
	if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
		return netip.Addr{}
	}
	a, _ := netip.ParseAddr(e.Addresses[0])
	return a
}

// endpointSlice are the fields of an EndpointSlice.
type endpointSlice struct {
	Metadata struct {
		Namespace string
		Labels    map[string]string
	}
	Endpoints []endpoint
	Ports     []struct {
		Name     string
		Port     uint16
		Protocol string
	}
}

// service finds a service by its name or one of its addresses, with its endpoints for clients on a node. Without one
// there are no ends, and no error.
func (x *explanation) service(ctx context.Context, q query, client string) ([]explain.End, error) {
	if !x.services() {
		return nil, nil
	}
	s, err := x.findService(ctx, q.to)
	if err != nil || s == nil {
		return nil, err
	}
	portName, known := "", []string{}
	found := false
	for _, p := range s.Spec.Ports {
		known = append(known, fmt.Sprintf("%d/%s", p.Port, strings.ToLower(p.Protocol)))
		if p.Port == q.port && model.Protocol(p.Protocol) == q.protocol {
			portName, found = p.Name, true
		}
	}
	if !found {
		return nil, model.Errorf(model.CodeInvalidConf, "it has "+strings.Join(known, ", "),
			"service %s has no such port: %d", s.name(), q.port)
	}
	if slices.Contains(s.Spec.ClusterIPs, "None") {
		return nil, model.Errorf(model.CodeInvalidConf, "explain the connection to one of its pods",
			"service %s has no address: its name stands for its endpoints' addresses", s.name())
	}
	endpoints, err := x.slices(ctx, *s)
	if err != nil {
		return nil, err
	}
	var out []explain.End
	for _, text := range s.Spec.ClusterIPs {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", s.name(), err)
		}
		if a, err := netip.ParseAddr(q.to); err == nil && a != ip {
			continue
		}
		end := explain.End{Kind: explain.ServiceEnd, Name: s.name(), Addr: ip}
		x.backends(&end, endpoints, portName, s.Spec.InternalTrafficPolicy == "Local", client)
		out = append(out, end)
	}
	return out, nil
}

// addBackends adds to nodes the pods to which the port leads: that of a pod, or of a Service with node ports.
func (x *explanation) addBackends(ctx context.Context, q query, ends []explain.End) error {
	for i, end := range ends {
		ends[i] = explain.WithHostPort(x.nodes, end, q.protocol, q.port)
		if end.Kind != explain.NodeEnd || q.port == 0 || len(ends[i].Backends) > 0 || !x.services() {
			continue
		}
		if err := x.nodePort(ctx, q, &ends[i]); err != nil {
			return err
		}
	}
	return nil
}

// nodePort adds the endpoints of a Service to the end of a node whose port is one of the Service's.
func (x *explanation) nodePort(ctx context.Context, q query, end *explain.End) error {
	all, err := x.objects.List(ctx, store.Services())
	if err != nil {
		return err
	}
	for _, o := range all {
		var s service
		if err := json.Unmarshal(o.Raw, &s); err != nil {
			return fmt.Errorf("%s: %w", o.Key, err)
		}
		for _, p := range s.Spec.Ports {
			if p.NodePort != q.port || model.Protocol(p.Protocol) != q.protocol {
				continue
			}
			endpoints, err := x.slices(ctx, s)
			if err != nil {
				return err
			}
			local := s.Spec.ExternalTrafficPolicy == "Local"
			x.backends(end, endpoints, p.Name, local, end.Node)
			end.Masquerade = !local
			if len(end.Backends) == 0 && end.Policy == "" {
				end.Policy = "service " + s.name() + " has no ready endpoint"
			}
			return nil
		}
	}
	return nil
}

// findService reads a service by its name or address; nil: there is none.
func (x *explanation) findService(ctx context.Context, to string) (*service, error) {
	var s service
	ip, err := netip.ParseAddr(to)
	if err != nil {
		namespace, name, _ := strings.Cut(to, "/")
		o, err := x.objects.Get(ctx, store.Services(), store.Services().Key(namespace, name))
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		if err == nil {
			err = json.Unmarshal(o.Raw, &s)
		}
		return &s, err
	}
	all, err := x.objects.List(ctx, store.Services())
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		s = service{}
		if err := json.Unmarshal(o.Raw, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Key, err)
		}
		if slices.Contains(s.Spec.ClusterIPs, ip.String()) {
			return &s, nil
		}
	}
	return nil, nil
}

// slices reads the EndpointSlices of a service.
func (x *explanation) slices(ctx context.Context, s service) ([]endpointSlice, error) {
	all, err := x.objects.List(ctx, store.EndpointSlices())
	if err != nil {
		return nil, err
	}
	var out []endpointSlice
	for _, o := range all {
		var e endpointSlice
		if err := json.Unmarshal(o.Raw, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Key, err)
		}
		if o.Key.Namespace == s.Metadata.Namespace && e.Metadata.Labels[store.ServiceNameLabel] == s.Metadata.Name {
			out = append(out, e)
		}
	}
	return out, nil
}

// backends adds the ready endpoints of the end's family, those on the client's node only if local.
func (x *explanation) backends(end *explain.End, all []endpointSlice, portName string, local bool, client string) {
	ready := 0
	for _, s := range all {
		for _, p := range s.Ports {
			if p.Name != portName {
				continue
			}
			for _, e := range s.Endpoints {
				a := e.address()
				if !a.IsValid() || a.Is4() != end.Addr.Is4() {
					continue
				}
				if ready++; local && e.NodeName != client {
					continue
				}
				end.BackendPort = p.Port
				end.Backends = append(end.Backends, explain.Resolve(x.nodes, a.String(), "")...)
			}
		}
	}
	if local && ready > 0 && len(end.Backends) == 0 {
		end.Policy = fmt.Sprintf("its traffic policy is Local, and none of the %d ready ones is on %s", ready, client)
	}
}
