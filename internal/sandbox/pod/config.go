// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/weft-net/weft/internal/sandbox/checkpoint"
	"github.com/weft-net/weft/internal/sandbox/engine"
)

// Node is the part of a pod's configuration that comes from the node.
type Node struct {
	Name       string
	LogDir     string
	PodCIDRs   []netip.Prefix // passed to plugins that declare ipRanges
	ClusterDNS []string
	Domain     string // of the cluster
	// ResolvConf is the node's /etc/resolv.conf.
	ResolvConf []byte
}

// Config returns the sandbox configuration of a pod.
func Config(p *v1.Pod, node Node, attempt int) (engine.PodConfig, error) {
	c := engine.PodConfig{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Attempt: attempt,
		LogDir: LogDir(p, node.LogDir), Labels: p.Labels, Annotations: p.Annotations,
		HostNetwork: p.Spec.HostNetwork, HostIPC: p.Spec.HostIPC, HostPID: p.Spec.HostPID,
		SharePID: p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace,
		Grace:    time.Second, Caps: map[string]any{},
	}
	if !p.Spec.HostNetwork {
		c.Hostname = Hostname(p)
	}
	if sc := p.Spec.SecurityContext; sc != nil && len(sc.Sysctls) > 0 {
		c.Sysctls = map[string]string{}
		for _, s := range sc.Sysctls {
			c.Sysctls[strings.ReplaceAll(s.Name, "/", ".")] = s.Value
		}
	}
	if p.Spec.HostNetwork {
		return c, nil
	}
	c.PortMappings = portMappings(p)
	if len(p.Annotations) > 0 {
		c.Caps["io.kubernetes.cri.pod-annotations"] = p.Annotations
	}
	bw, err := bandwidth(p.Annotations)
	if err != nil {
		return c, err
	}
	if bw != nil {
		c.Caps["bandwidth"] = bw
	}
	if len(node.PodCIDRs) > 0 {
		var ranges [][]map[string]string
		for _, cidr := range node.PodCIDRs {
			ranges = append(ranges, []map[string]string{{"subnet": cidr.String()}})
		}
		c.Caps["ipRanges"] = ranges
	}
	if dns := Resolver(p, node, engineDNS{}); !dns.empty() {
		c.Caps["dns"] = dns
	}
	return c, nil
}

// LogDir returns the pod's directory in the log directory.
func LogDir(p *v1.Pod, root string) string {
	return filepath.Join(root, fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID))
}

// Hostname returns the pod's host name. The limit of the kernel is 64 bytes, of Kubernetes 63.
func Hostname(p *v1.Pod) string {
	h := p.Spec.Hostname
	if h == "" {
		h = p.Name
	}
	if len(h) > 63 {
		h = strings.TrimRight(h[:63], "-.")
	}
	return h
}

func portMappings(p *v1.Pod) []checkpoint.PortMapping {
	var out []checkpoint.PortMapping
	for _, c := range containers(p) {
		for _, pt := range c.Ports {
			if pt.HostPort == 0 {
				continue
			}
			out = append(out, checkpoint.PortMapping{
				HostPort: pt.HostPort, ContainerPort: pt.ContainerPort,
				Protocol: strings.ToLower(string(pt.Protocol)), HostIP: pt.HostIP,
			})
		}
	}
	return out
}

// bandwidth parses the bandwidth annotations of Kubernetes. Rates are in bits per second, bursts in bits.
func bandwidth(annotations map[string]string) (map[string]uint64, error) {
	const unlimitedBurst = 1<<31 - 1 // the plugin requires a burst; runtimes set this one
	out := map[string]uint64{}
	for _, dir := range []string{"ingress", "egress"} {
		key := "kubernetes.io/" + dir + "-bandwidth"
		s, ok := annotations[key]
		if !ok {
			continue
		}
		q, err := resource.ParseQuantity(s)
		if err != nil || q.Value() < 1000 || q.Value() > 1e15 {
			return nil, bad(`write for example "10M"`, "annotation %s %q is not a rate from 1k to 1P", key, clip(s))
		}
		out[dir+"Rate"], out[dir+"Burst"] = uint64(q.Value()), unlimitedBurst
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// HostPorts returns the pod's host ports, for messages.
func HostPorts(p *v1.Pod) []string {
	var out []string
	for _, m := range portMappings(p) {
		out = append(out, strconv.Itoa(int(m.HostPort))+"/"+m.Protocol)
	}
	return out
}
