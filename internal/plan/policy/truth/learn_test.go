// SPDX-License-Identifier: Apache-2.0

package truth_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// learn tells a compiler a whole cluster.
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
}

// learnPod tells of a pod as the API server has it and of its interfaces as its node has published them. Who has
// completed has none, but its status keeps the address.
func learnPod(x *policy.Index, p *naive.Pod) {
	pod := model.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: refOf(p).UID, Node: p.Node, HostNetwork: p.HostNetwork, Labels: p.Labels,
		IPs: p.Addrs[""], Phase: "Running",
	}
	if p.Done {
		pod.Phase = "Succeeded"
	}
	for _, port := range p.Ports {
		pod.Ports = append(pod.Ports, model.PodPort{
			Name: port.Name, Protocol: model.Protocol(port.Proto), Number: uint16(port.Port),
		})
	}
	x.SetPod(pod)
	for _, e := range endpoints(p) {
		if p.Done || p.HostNetwork {
			x.DelEndpoint(e.Key())
		} else {
			x.SetEndpoint(e)
		}
	}
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

// decoded are the policy's words as the API server has them, read as an agent reads them.
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
	if err != nil || len(p.Faults) > 0 {
		panic(fmt.Sprintf("%s: %v %q", raw, err, p.Faults))
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
