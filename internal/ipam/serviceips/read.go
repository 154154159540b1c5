// SPDX-License-Identifier: Apache-2.0

package serviceips

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// ConditionIPs is true if a Service of type LoadBalancer has the addresses that it requests.
const ConditionIPs = "weft.dev/LoadBalancerIPs"

// The classes of load balancers whose Services get addresses. Calico's only if its pools are mirrored.
const (
	Class       = "weft.dev/load-balancer"
	classCalico = "calico"
)

// The annotations of Calico by which a Service requests pools and addresses.
const (
	annotationPools4 = "projectcalico.org/ipv4pools"
	annotationPools6 = "projectcalico.org/ipv6pools"
	annotationIPs    = "projectcalico.org/loadBalancerIPs"
)

// object is the part of a Service that is read.
type object struct {
	Metadata struct {
		Created     time.Time         `json:"creationTimestamp"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Type           string   `json:"type"`
		Class          *string  `json:"loadBalancerClass"`
		LoadBalancerIP string   `json:"loadBalancerIP"`
		Families       []string `json:"ipFamilies"`
		FamilyPolicy   string   `json:"ipFamilyPolicy"`
		TrafficPolicy  string   `json:"externalTrafficPolicy"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []struct {
				IP string `json:"ip"` // empty: it has a name
			} `json:"ingress"`
		} `json:"loadBalancer"`
		Conditions []struct {
			Type string `json:"type"`
		} `json:"conditions"`
	} `json:"status"`
}

// Concerns reports whether a Service has addresses of a load balancer, or may get some.
func Concerns(o store.Object) bool {
	var s object
	return json.Unmarshal(o.Raw, &s) != nil || s.Spec.Type == "LoadBalancer" || len(s.Status.LoadBalancer.Ingress) > 0 || s.marked()
}

// Mode is to which Services of type LoadBalancer without a class addresses are assigned, as in Calico's
// KubeControllersConfiguration.
type Mode string

// The modes.
const (
	// AllServices: to all.
	AllServices Mode = "AllServices"
	// RequestedServicesOnly: to those that request an address or a pool.
	RequestedServicesOnly Mode = "RequestedServicesOnly"
)

// Read returns a Service as far as its addresses are concerned.
func Read(o store.Object, assign Mode, followCalico bool) Service {
	out := Service{Name: o.Key.Namespace + "/" + o.Key.Name}
	var in object
	if err := json.Unmarshal(o.Raw, &in); err != nil {
		return out // the server's own object: it is another one's in any case
	}
	out.Local = in.Spec.TrafficPolicy == "Local"
	out.Created = in.Metadata.Created.Unix()
	foreign := false
	for _, i := range in.Status.LoadBalancer.Ingress {
		a, err := netip.ParseAddr(i.IP)
		if foreign = foreign || err != nil; err == nil {
			out.Addrs = append(out.Addrs, a.Unmap())
		}
	}
	marked, request := in.marked(), in.requests()
	class := in.Spec.Class
	switch {
	case in.Spec.Type != "LoadBalancer":
		out.Owner = Released
		return out
	case class != nil && *class != Class && (*class != classCalico || !followCalico):
		return out
	case class == nil && assign == RequestedServicesOnly && !request:
		if marked {
			out.Owner = Released
		}
		return out
	case class == nil && !marked && foreign:
		return out
	}
	out.Owner, out.Shared = Weft, class == nil && !marked
	for _, f := range in.Spec.Families {
		out.Families = append(out.Families, map[string]int{"IPv4": 4, "IPv6": 6}[f])
	}
	if len(out.Families) == 0 { // stores other than Kubernetes do not default it
		out.Families = []int{4}
	}
	out.RequireAll = in.Spec.FamilyPolicy == "RequireDualStack"
	out.Err = in.readRequests(&out)
	return out
}

// marked reports whether the Service's addresses are or were assigned by weft.
func (s object) marked() bool {
	for _, c := range s.Status.Conditions {
		if c.Type == ConditionIPs {
			return true
		}
	}
	return false
}

// requests reports whether the Service requests an address or a pool.
func (s object) requests() bool {
	a := s.Metadata.Annotations
	return s.Spec.LoadBalancerIP != "" || a[annotationPools4] != "" || a[annotationPools6] != "" || a[annotationIPs] != ""
}

func (s object) readRequests(out *Service) error {
	texts, err := s.list(annotationIPs, `["192.0.2.10"]`)
	if err != nil {
		return err
	}
	field := annotationField(annotationIPs)
	if len(texts) == 0 && s.Spec.LoadBalancerIP != "" {
		texts, field = []string{s.Spec.LoadBalancerIP}, "spec.loadBalancerIP"
	}
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return model.Errorf(model.CodeInvalidConf, "write for example 192.0.2.10", "%s: %q is no address", field, text)
		}
		out.Requests = append(out.Requests, Request{Field: field, Addr: a.Unmap()})
	}
	for _, of := range []struct {
		annotation string
		family     int
	}{{annotationPools4, 4}, {annotationPools6, 6}} {
		names, err := s.list(of.annotation, `["services"]`)
		if err != nil {
			return err
		}
		for _, name := range names {
			out.Pools = append(out.Pools, PoolRequest{Field: annotationField(of.annotation), Family: of.family, Pool: name})
		}
	}
	return nil
}

func annotationField(name string) string { return "metadata.annotations[" + name + "]" }

// list reads an annotation that is a list in JSON.
func (s object) list(annotation, example string) (out []string, err error) {
	text := s.Metadata.Annotations[annotation]
	if text == "" {
		return nil, nil
	}
	if json.Unmarshal([]byte(text), &out) != nil {
		return nil, model.Errorf(model.CodeInvalidConf, "write for example "+example, "%s: %q is no list in JSON", annotationField(annotation), text)
	}
	return out, nil
}

// List returns the Services that concern the pools; none if no pool is for Services.
func List(ctx context.Context, objects store.Objects, pools []model.AddressPool) (out []Service, err error) {
	if !slices.ContainsFunc(pools, model.AddressPool.ForServices) {
		return nil, nil
	}
	err = store.Each(ctx, objects, store.Services(), func(o store.Object) {
		if Concerns(o) {
			out = append(out, Read(o, AllServices, true))
		}
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("list of services: %w", err)
	}
	return out, nil
}
