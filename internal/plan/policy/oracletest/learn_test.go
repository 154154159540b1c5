// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// learn passes a whole cluster to a compiler.
func learn(x *policy.Index, w naive.World) {
	for _, name := range nodes() {
		x.SetNode(model.Node{Name: name, Labels: w.Nodes[name].Labels, Addrs: w.Nodes[name].Addrs})
	}
	for name, labels := range w.Namespaces {
		x.SetNamespace(model.Namespace{Name: name, Labels: labels})
	}
	for i := range w.Pods {
		learnPod(x, &w.Pods[i])
	}
	for _, p := range w.Policies {
		x.SetPolicy(modelPolicy(p))
	}
	for _, p := range w.Cluster {
		x.SetPolicy(modelCluster(p))
	}
	if w.Calico != nil {
		learnCalico(x, w.Calico)
	}
}

// learnPod passes a pod as the API server has it, and its interfaces as its node has published them. A completed pod
// has no interfaces, but its status keeps the address.
func learnPod(x *policy.Index, p *naive.Pod) {
	x.SetPod(modelPod(p))
	for _, e := range endpoints(p) {
		if p.Done || p.HostNetwork {
			x.DelEndpoint(e.Key())
		} else {
			x.SetEndpoint(e)
		}
	}
}

func modelPod(p *naive.Pod) model.Pod {
	pod := model.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: refOf(p).UID, Node: p.Node, HostNetwork: p.HostNetwork, Labels: p.Labels,
		IPs: p.Addrs[""], Phase: "Running", ServiceAccount: p.Account,
	}
	if p.Done {
		pod.Phase = "Succeeded"
	}
	for _, port := range p.Ports {
		pod.Ports = append(pod.Ports, model.PodPort{
			Name: port.Name, Protocol: model.Protocol(port.Proto), Number: uint16(port.Port),
		})
	}
	return pod
}

func endpoints(p *naive.Pod) []model.WorkloadEndpoint {
	out := []model.WorkloadEndpoint{
		{Pod: refOf(p), Node: p.Node, IfName: "eth0", HostLink: linkOf(p), Addrs: p.Addrs[""], HostEnd: model.HostEndRouted},
	}
	if a := p.Addrs[second]; len(a) > 0 {
		out = append(out, model.WorkloadEndpoint{Pod: refOf(p), Node: p.Node, Network: second, IfName: "net1", Addrs: a})
	}
	return out
}

// decoded returns the policy as an agent decodes it from the API server.
func decoded(apiVersion, kind string, metadata naive.Metadata, networks []string, spec any) model.Policy {
	meta := map[string]any{"name": metadata.Name}
	if metadata.Namespace != "" {
		meta["namespace"] = metadata.Namespace
	}
	if len(networks) > 0 {
		meta["annotations"] = map[string]string{"k8s.v1.cni.cncf.io/policy-for": strings.Join(networks, ",")}
	}
	raw, err := json.Marshal(map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": meta, "spec": spec})
	if err != nil {
		panic(err)
	}
	o, err := store.NewObject(raw)
	if err != nil {
		panic(err)
	}
	p, err := o.Policy()
	if err != nil || len(p.Errors) > 0 {
		panic(fmt.Sprintf("%s: %v %q", raw, err, p.Errors))
	}
	return p
}

func modelPolicy(p naive.NetworkPolicy) model.Policy {
	if len(p.Networks) > 0 {
		return decoded("k8s.cni.cncf.io/v1beta1", "MultiNetworkPolicy", p.Metadata, p.Networks, p.Spec)
	}
	return decoded("networking.k8s.io/v1", "NetworkPolicy", p.Metadata, nil, p.Spec)
}

func modelCluster(p naive.ClusterPolicy) model.Policy {
	return decoded("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", p.Metadata, nil, p.Spec)
}
