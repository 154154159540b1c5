// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

type metadata struct {
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Node returns the object as a node.
func (o Object) Node() (model.Node, error) {
	if n, ok := o.value.(model.Node); ok {
		return n, nil
	}
	var n struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			PodCIDR  string   `json:"podCIDR"`
			PodCIDRs []string `json:"podCIDRs"`
		} `json:"spec"`
		Status struct {
			Addresses []struct {
				Type    string `json:"type"`
				Address string `json:"address"`
			} `json:"addresses"`
			Conditions []struct {
				Type   string `json:"type"`
				Status string `json:"status"`
			} `json:"conditions"`
		} `json:"status"`
	}
	err := o.decode(&n)
	if err != nil {
		return model.Node{}, err
	}
	node := model.Node{
		Name: o.Key.Name, Labels: internedLabels(n.Metadata.Labels), Annotations: n.Metadata.Annotations,
	}
	for _, c := range n.Status.Conditions {
		node.NotReady = node.NotReady || c.Type == "Ready" && c.Status != "True"
	}
	cidrs, field := n.Spec.PodCIDRs, "spec.podCIDRs"
	switch {
	case len(cidrs) == 0 && n.Spec.PodCIDR != "":
		cidrs, field = []string{n.Spec.PodCIDR}, "spec.podCIDR"
	case len(cidrs) > 0 && n.Spec.PodCIDR != "" && n.Spec.PodCIDR != cidrs[0]:
		return node, o.errorf("leave spec.podCIDR out, or make it the first of spec.podCIDRs",
			"spec.podCIDR %q contradicts spec.podCIDRs %q", n.Spec.PodCIDR, cidrs)
	}
	for i, s := range cidrs {
		p, err := o.prefix(fmt.Sprintf("%s[%d]", field, i), s)
		if err != nil {
			return node, err
		}
		node.PodCIDRs = append(node.PodCIDRs, p)
	}
	for i, a := range n.Status.Addresses {
		if a.Type != "InternalIP" {
			continue
		}
		ip, err := o.addr(fmt.Sprintf("status.addresses[%d].address", i), a.Address)
		if err != nil {
			return node, err
		}
		node.Addrs = append(node.Addrs, ip)
	}
	if node.BGP, err = o.nodeBGP(node.Annotations); err != nil {
		return node, err
	}
	node.Unmanaged = parseUnmanaged(node.Annotations[UnmanagedAnnotation])
	return o.published(node)
}

// published adds the content of flannel's annotations.
func (o Object) published(node model.Node) (model.Node, error) {
	keys, err := flannel.DefaultKeys(), error(nil)
	node.VTEP = keys.ReadVTEP(node.Annotations)
	if node.Published, err = keys.Read(node.Annotations); err == nil {
		node.Public, err = keys.Public(node.Annotations)
	}
	if err != nil {
		return node, fmt.Errorf("%s: %w", o.Key, err)
	}
	return node, nil
}

// Pod returns the object as a pod. A pod without a uid gets one that is derived from its name, so that all readers of
// the manifest use the same one.
func (o Object) Pod() (model.Pod, error) {
	if p, ok := o.value.(model.Pod); ok {
		return p, nil
	}
	var p struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			NodeName       string         `json:"nodeName"`
			HostNetwork    bool           `json:"hostNetwork"`
			Account        string         `json:"serviceAccountName"`
			Containers     []podContainer `json:"containers"`
			InitContainers []podContainer `json:"initContainers"`
		} `json:"spec"`
		Status struct {
			Phase  string                `json:"phase"`
			PodIP  string                `json:"podIP"`
			PodIPs []struct{ IP string } `json:"podIPs"`
		} `json:"status"`
	}
	if err := o.decode(&p); err != nil {
		return model.Pod{}, err
	}
	pod := model.Pod{
		Namespace: o.Key.Namespace, Name: o.Key.Name, UID: p.Metadata.UID, Node: p.Spec.NodeName,
		HostNetwork: p.Spec.HostNetwork, ServiceAccount: p.Spec.Account,
		Phase: p.Status.Phase, Labels: p.Metadata.Labels, Annotations: p.Metadata.Annotations,
	}
	if pod.UID == "" {
		pod.UID = DeriveUID(o.Key)
	}
	pod.Ports = namedPorts(p.Spec.Containers, p.Spec.InitContainers)
	if len(p.Status.PodIPs) == 0 && p.Status.PodIP != "" {
		p.Status.PodIPs = []struct{ IP string }{{p.Status.PodIP}}
	}
	for i, s := range p.Status.PodIPs {
		ip, err := o.addr(fmt.Sprintf("status.podIPs[%d].ip", i), s.IP)
		if err != nil {
			return pod, err
		}
		pod.IPs = append(pod.IPs, ip)
	}
	return pod, nil
}

// ReadyNodes returns the Service of an EndpointSlice and the nodes of its ready endpoints, "" for those without a node; ok is
// false if it cannot be read.
func ReadyNodes(o Object) (service Key, nodes map[string]bool, ok bool) {
	var in struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Endpoints []struct {
			Node       string `json:"nodeName"`
			Conditions struct {
				Ready *bool `json:"ready"`
			} `json:"conditions"`
		} `json:"endpoints"`
	}
	if json.Unmarshal(o.Raw, &in) != nil {
		return service, nil, false
	}
	nodes = map[string]bool{}
	for _, e := range in.Endpoints {
		if e.Conditions.Ready == nil || *e.Conditions.Ready {
			nodes[e.Node] = true
		}
	}
	return Services().Key(o.Key.Namespace, in.Metadata.Labels[ServiceNameLabel]), nodes, true
}

// EndpointSlice returns the object as a part of a Service's endpoints; those with names of domains have none.
func (o Object) EndpointSlice() (model.EndpointSlice, error) {
	var in struct {
		Metadata    metadata `json:"metadata"`
		AddressType string   `json:"addressType"`
		Endpoints   []struct {
			Addresses []string `json:"addresses"`
		} `json:"endpoints"`
		Ports []struct {
			Protocol *string `json:"protocol"`
			Port     *uint16 `json:"port"`
		} `json:"ports"`
	}
	err := o.decode(&in)
	out := model.EndpointSlice{
		Namespace: o.Key.Namespace, Name: o.Key.Name, Service: in.Metadata.Labels[ServiceNameLabel],
	}
	if err != nil || in.AddressType == "FQDN" {
		return out, err
	}
	for i, e := range in.Endpoints {
		for j, text := range e.Addresses {
			a, err := o.addr(fmt.Sprintf("endpoints[%d].addresses[%d]", i, j), text)
			if err != nil {
				return out, err
			}
			one := model.ServiceEndpoint{Addr: a, Protocol: model.TCP}
			if len(in.Ports) == 0 {
				out.Endpoints = append(out.Endpoints, one)
			}
			for _, p := range in.Ports {
				if one.Protocol = model.TCP; p.Protocol != nil {
					one.Protocol = model.Protocol(*p.Protocol)
				}
				if one.Port = 0; p.Port != nil {
					one.Port = *p.Port
				}
				out.Endpoints = append(out.Endpoints, one)
			}
		}
	}
	return out, nil
}

// ServiceAccount returns the object as a service account.
func (o Object) ServiceAccount() (model.ServiceAccount, error) {
	var a struct {
		Metadata metadata `json:"metadata"`
	}
	err := o.decode(&a)
	return model.ServiceAccount{Namespace: o.Key.Namespace, Name: o.Key.Name, Labels: a.Metadata.Labels}, err
}

// Namespace returns the object as a namespace.
func (o Object) Namespace() (model.Namespace, error) {
	if n, ok := o.value.(model.Namespace); ok {
		return n, nil
	}
	var n struct {
		Metadata metadata `json:"metadata"`
	}
	err := o.decode(&n)
	return model.Namespace{Name: o.Key.Name, Labels: n.Metadata.Labels, Annotations: n.Metadata.Annotations}, err
}

// DeriveUID returns the uid of an object whose manifest has none.
func DeriveUID(k Key) string {
	sum := sha256.Sum256([]byte("weft uid " + k.Group + " " + k.String()))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// Cluster returns the objects as a sorted snapshot, and the errors of invalid objects, which are left out. Self is left
// empty.
func Cluster(objects []Object) (model.Cluster, []error) {
	var c model.Cluster
	var problems []error
	add := func(err error, keep func()) {
		if err != nil {
			problems = append(problems, err)
			return
		}
		keep()
	}
	for _, o := range objects {
		switch {
		case o.Is("Node"):
			n, err := o.Node()
			add(err, func() { c.Nodes = append(c.Nodes, n) })
		case o.Is("Pod"):
			p, err := o.Pod()
			add(err, func() { c.Pods = append(c.Pods, p) })
		case o.Is("Namespace"):
			n, err := o.Namespace()
			add(err, func() { c.Namespaces = append(c.Namespaces, n) })
		case o.Key.Of(NetworkAttachments()):
			n, err := o.NetworkAttachment()
			add(err, func() { c.Networks = append(c.Networks, n) })
		case o.Key.Of(AddressPools()):
			p, err := o.poolValue()
			add(err, func() { c.Pools = append(c.Pools, p) })
		case o.Key.Of(AddressBlocks()):
			b, err := o.blockValue()
			add(err, func() { c.Blocks = append(c.Blocks, b) })
		}
	}
	slices.SortFunc(c.Nodes, func(a, b model.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(c.Namespaces, func(a, b model.Namespace) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(c.Pods, func(a, b model.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(c.Networks, func(a, b model.NetworkAttachment) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(c.Pools, func(a, b model.AddressPool) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(c.Blocks, func(a, b model.AddressBlock) int {
		return cmp.Or(a.CIDR.Addr().Compare(b.CIDR.Addr()), a.CIDR.Bits()-b.CIDR.Bits(), strings.Compare(a.Pool, b.Pool))
	})
	return c, problems
}

// poolValue is AddressPool for callers that do not modify it.
func (o Object) poolValue() (model.AddressPool, error) {
	if p, ok := o.value.(model.AddressPool); ok {
		return p, nil
	}
	return o.AddressPool()
}

// blockValue is AddressBlock for callers that do not modify it: a snapshot has thousands of them.
func (o Object) blockValue() (model.AddressBlock, error) {
	if b, ok := o.value.(model.AddressBlock); ok {
		return b, nil
	}
	return o.AddressBlock()
}

func (o Object) decode(into any) error {
	if err := json.Unmarshal(o.Raw, into); err != nil {
		return o.errorf("compare with `kubectl explain "+strings.ToLower(o.Key.Kind)+"`", "%w", err)
	}
	return nil
}

func (o Object) errorf(hint, format string, args ...any) error {
	return model.Errorf(model.CodeInvalidConf, hint, "%s: %w", o.Key, fmt.Errorf(format, args...))
}

func (o Object) prefix(field, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, o.errorf(`write for example "10.244.1.0/24"`, "%s %q is no prefix", field, s)
	}
	if p.Addr().Is4In6() {
		return p, o.errorf("write the IPv4 form", "%s %q is an IPv4-mapped IPv6 prefix", field, s)
	}
	if p != p.Masked() {
		return p, o.errorf(fmt.Sprintf("write %q", p.Masked()), "%s %q has bits set behind the prefix length", field, s)
	}
	return p, nil
}

func (o Object) addr(field, s string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.Zone() != "" {
		return ip, o.errorf(`write for example "192.168.0.1"`, "%s %q is no IP address", field, s)
	}
	return ip.Unmap(), nil
}
