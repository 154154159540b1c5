// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
)

// namedPort replaces the name of a port by its number and protocol, as the destination, a pod or a Service, defines it.
func (x *explanation) namedPort(ctx context.Context, q query) (query, error) {
	if q.portName == "" {
		return q, nil
	}
	if x.objects == nil {
		return q, model.Errorf(model.CodeInvalidConf, "give its number", "port %q of %s: names of ports are not known here",
			q.portName, q.to)
	}
	owner, ports, err := x.ports(ctx, q)
	if err != nil {
		return q, err
	}
	var names, known []string
	for _, p := range ports {
		if p.Name == q.portName && (q.protocol == "" || q.protocol == p.Protocol) {
			q.port, q.protocol = p.Number, p.Protocol
			return q, nil
		}
		if p.Name != "" {
			names = append(names, p.Name)
			known = append(known, p.Name+"/"+strings.ToLower(string(p.Protocol)))
		}
	}
	hint := "give its number"
	switch near := cni.Nearest(q.portName, names); {
	case near != "" && near != q.portName:
		hint = "did you mean " + near + "?"
	case len(names) > 0:
		hint = "it has " + strings.Join(known, ", ")
	}
	return q, model.Errorf(model.CodeInvalidConf, hint, "%s has no port with the name %q", owner, q.portName)
}

// ports returns the ports that the destination defines, and what it is called.
func (x *explanation) ports(ctx context.Context, q query) (owner string, ports []model.PodPort, err error) {
	name := q.to
	ends := explain.Resolve(x.nodes, q.to, q.network)
	if len(ends) > 0 && ends[0].Kind == explain.PodEnd {
		name = ends[0].Name // of an address
	}
	if namespace, pod, ok := strings.Cut(name, "/"); ok {
		o, err := x.objects.Get(ctx, store.Pods(), store.PodKey(namespace, pod))
		if err == nil {
			p, err := o.Pod()
			return "pod " + name, p.Ports, err
		}
		if !errors.Is(err, store.ErrNotFound) {
			return "", nil, fmt.Errorf("pod %s: %w", name, err)
		}
	}
	if !x.services() {
		return name, nil, nil
	}
	s, err := x.findService(ctx, q.to)
	if err != nil || s == nil {
		return name, nil, err
	}
	for _, p := range s.Spec.Ports {
		ports = append(ports, model.PodPort{Name: p.Name, Protocol: model.Protocol(p.Protocol), Number: p.Port})
	}
	return "service " + s.name(), ports, nil
}
