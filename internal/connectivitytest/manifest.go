// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Ports of the servers. Those of nodes are below the range of node ports, and below the kernel's of clients.
const (
	serverPort  = 8080
	secondPort  = 8081
	nodePort    = 29871
	hostPort    = 29872
	portName    = "probe"
	servicePort = 80
)

// Labels of the test's namespaces and pods.
const (
	managedBy = "app.kubernetes.io/managed-by"
	manager   = "weft-connectivity-test"
	roleLabel = "role"
)

// Container is the name of the container of the test's pods.
const Container = "server"

// podLifeSeconds ends pods whose namespace was not deleted.
const podLifeSeconds = 3600

// object returns an object of its fields.
func object(fields map[string]any) (store.Object, error) {
	b, err := json.Marshal(fields)
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(b)
}

func events() store.Kind {
	return store.Kind{Version: "v1", Kind: "Event", Resource: "events", Namespaced: true}
}

func namespaceManifest(name string, labels map[string]string) map[string]any {
	all := map[string]string{
		managedBy: manager, "kubernetes.io/metadata.name": name,
		// For ICMP, for pods in the node's network, and for ports of the host.
		"pod-security.kubernetes.io/enforce": "privileged",
	}
	for k, v := range labels {
		all[k] = v
	}
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": all}}
}

// podSpec is a pod of the test.
type podSpec struct {
	namespace, name, node string
	labels                map[string]string
	networks              string // annotation
	hostNetwork           bool
	hostPort              bool
}

func (f *fixture) podManifest(p podSpec) map[string]any {
	ports := []int{serverPort, secondPort}
	if p.hostNetwork {
		ports = []int{nodePort}
	}
	command := []string{f.cluster.Program(), "connectivity-test", "serve", "--name", p.name}
	for _, port := range ports {
		command = append(command, "--port", strconv.Itoa(port))
	}
	first := map[string]any{"name": portName, "containerPort": ports[0], "protocol": "TCP"}
	if p.hostPort {
		first["hostPort"] = hostPort
	}
	spec := map[string]any{
		"nodeName": p.node, "hostNetwork": p.hostNetwork, "automountServiceAccountToken": false,
		"terminationGracePeriodSeconds": 0, "activeDeadlineSeconds": podLifeSeconds,
		"tolerations": []any{map[string]any{"operator": "Exists"}},
		"containers": []any{map[string]any{
			"name": Container, "image": f.cluster.Image(), "imagePullPolicy": "IfNotPresent", "command": command,
			"ports":           []any{first},
			"securityContext": map[string]any{"capabilities": map[string]any{"add": []string{"NET_RAW"}}},
		}},
	}
	if f.cluster.Lab() {
		for _, unknown := range []string{"tolerations", "activeDeadlineSeconds", "automountServiceAccountToken"} {
			delete(spec, unknown)
		}
		delete(spec["containers"].([]any)[0].(map[string]any), "securityContext")
	}
	meta := map[string]any{"name": p.name, "namespace": p.namespace, "labels": p.labels}
	if p.networks != "" {
		meta["annotations"] = map[string]string{"k8s.v1.cni.cncf.io/networks": p.networks}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
}

func serviceManifest(namespace, name, kind, role string) map[string]any {
	port := func(protocol string) map[string]any {
		return map[string]any{
			"name":       protocol,
			"port":       servicePort,
			"targetPort": serverPort,
			"protocol":   map[string]string{"tcp": "TCP", "udp": "UDP"}[protocol],
		}
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"type": kind, "ipFamilyPolicy": "PreferDualStack", "selector": map[string]string{roleLabel: role},
			"ports": []any{port("tcp"), port("udp")},
		},
	}
}

func policyManifest(namespace, name string, spec map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec,
	}
}

// networkName is the name of the further network, and of its configuration: host-local keeps a directory of that name.
const networkName = "weft-connectivity-test"

// networkManifest is a bridge of the node, whose pods reach each other there.
func networkManifest(namespace, bridge string) map[string]any {
	conf := fmt.Sprintf(
		`{"cniVersion": "1.0.0", "name": %q, "type": "bridge", "bridge": %q, "ipam": {"type": "host-local",`+
			` "ranges": [[{"subnet": "198.18.77.0/24"}], [{"subnet": "2001:2:0:77::/64"}]]}}`,
		networkName,
		bridge,
	)
	return map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"name": networkName, "namespace": namespace}, "spec": map[string]any{"config": conf},
	}
}
