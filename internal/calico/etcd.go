// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plural"
)

// The keys of Calico's etcd datastore (etcdv3).
const (
	// EtcdPrefix is the prefix of all of Calico's keys.
	EtcdPrefix   = "/calico"
	etcdResource = EtcdPrefix + "/resources/v3/projectcalico.org/"
	etcdBlocks   = EtcdPrefix + "/ipam/v2/assignment/"
	etcdConfig   = EtcdPrefix + "/ipam/v2/config"
)

// EtcdPrefixes returns the prefixes of the keys that ReadEtcd reads.
func EtcdPrefixes() []string {
	out := []string{etcdBlocks, etcdConfig}
	for _, resource := range append([]string{"ippools", "ipreservations", "nodes"}, etcdPolicies()...) {
		out = append(out, etcdResource+resource+"/")
	}
	return out
}

// etcdPolicies are the resources that decide which packets pass, and that ReadEtcd only counts.
func etcdPolicies() []string {
	return []string{
		"globalnetworkpolicies", "globalnetworksets", "hostendpoints", "networkpolicies", "networksets",
		"stagedglobalnetworkpolicies", "stagednetworkpolicies", "tiers",
	}
}

// Etcd is what Calico has stored in an etcd.
type Etcd struct {
	// Objects are its pools, reservations, configuration and blocks, as the group projectcalico.org has them.
	Objects []store.Object
	// Policies are how many objects there are of resources that decide which packets pass, without those that Calico
	// has copied from Kubernetes or creates itself.
	Policies map[string]int
}

// Kinds returns the kinds of the objects that ReadEtcd returns, and of the same objects in the other group.
func Kinds() (out []store.Kind) {
	for _, g := range Groups() {
		out = append(out, g.Pools, g.Reservations, g.Configurations, g.Blocks)
	}
	return out
}

// ReadEtcd reads the values of Calico's keys. Calico's name of a node may differ from Kubernetes': its Node has that.
func ReadEtcd(values map[string]string) (Etcd, error) {
	out := Etcd{Policies: map[string]int{}}
	group := Groups()[1]
	nodes, err := etcdNodes(values)
	if err != nil {
		return out, err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		var o store.Object
		text, is := values[key], true
		resource, name, _ := strings.Cut(strings.TrimPrefix(key, etcdResource), "/")
		switch {
		case key == etcdConfig:
			o, err = etcdConfiguration(group.Configurations, text)
		case strings.HasPrefix(key, etcdBlocks):
			o, err = etcdBlock(group.Blocks, key[strings.LastIndexByte(key, '/')+1:], text, nodes)
		case strings.HasPrefix(key, etcdResource) && (resource == "ippools" || resource == "ipreservations"):
			o, err = store.NewObject([]byte(text))
		default:
			is = false
			if slices.Contains(etcdPolicies(), resource) && !ownPolicy(resource, name) {
				out.Policies[resource]++
			}
		}
		if err != nil {
			return out, fmt.Errorf("key %s: %w", key, err)
		}
		if is {
			out.Objects = append(out.Objects, o)
		}
	}
	return out, nil
}

// ownPolicy reports whether an object is a copy of Kubernetes' or one that Calico creates itself.
func ownPolicy(resource, name string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:]
	switch resource {
	case "networkpolicies":
		return strings.HasPrefix(name, "knp.default.")
	case "globalnetworkpolicies":
		return strings.HasPrefix(name, "kanp.") || strings.HasPrefix(name, "kbanp.") || strings.HasPrefix(name, "kcnp.")
	case "tiers":
		return slices.Contains([]string{"default", "adminnetworkpolicy", "baselineadminnetworkpolicy", "kube-admin", "kube-baseline"},
			name)
	}
	return false
}

// Warnings are what of the etcd is not imported.
func (e Etcd) Warnings() (out []string) {
	for _, resource := range slices.Sorted(maps.Keys(e.Policies)) {
		out = append(out, fmt.Sprintf("etcd has %s of %s, which are not imported and will not be enforced; create them in "+
			"Kubernetes: calicoctl get %s --all-namespaces -o yaml", plural.Count(e.Policies[resource], "object", "objects"),
			resource, resource))
	}
	return out
}

// etcdNodes returns Kubernetes' names of Calico's nodes.
func etcdNodes(values map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for key, text := range values {
		name, is := strings.CutPrefix(key, etcdResource+"nodes/")
		if !is {
			continue
		}
		var node struct {
			Spec struct {
				OrchRefs []struct {
					NodeName     string `json:"nodeName"`
					Orchestrator string `json:"orchestrator"`
				} `json:"orchRefs"`
			} `json:"spec"`
		}
		if err := json.Unmarshal([]byte(text), &node); err != nil {
			return nil, etcdInvalid(key, err)
		}
		for _, ref := range node.Spec.OrchRefs {
			if ref.Orchestrator == "k8s" && ref.NodeName != "" {
				out[name] = ref.NodeName
			}
		}
	}
	return out, nil
}

// etcdConfiguration returns the IPAM configuration, some of whose keys differ from those of the object.
func etcdConfiguration(kind store.Kind, text string) (store.Object, error) {
	var in struct {
		StrictAffinity     bool `json:"strict_affinity"`
		AutoAllocateBlocks bool `json:"auto_allocate_blocks"`
		MaxBlocksPerHost   int  `json:"maxBlocksPerHost"`
		IPCooldownSeconds  int  `json:"ipCooldownSeconds"`
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return store.Object{}, etcdInvalid(etcdConfig, err)
	}
	return etcdObject(kind, "default", map[string]any{
		"strictAffinity": in.StrictAffinity, "autoAllocateBlocks": in.AutoAllocateBlocks,
		"maxBlocksPerHost": in.MaxBlocksPerHost, "ipCooldownSeconds": in.IPCooldownSeconds,
	})
}

// etcdBlock returns a block. Its value is the spec of the object.
func etcdBlock(kind store.Kind, name, text string, nodes map[string]string) (store.Object, error) {
	var spec map[string]any
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return store.Object{}, etcdInvalid(name, err)
	}
	if affinity, _ := spec["affinity"].(string); affinity != "" {
		if node, is := strings.CutPrefix(affinity, "host:"); is && nodes[node] != "" {
			spec["affinity"] = "host:" + nodes[node]
		}
	}
	all, _ := spec["attributes"].([]any)
	for _, one := range all {
		fields, _ := one.(map[string]any)
		secondary, _ := fields["secondary"].(map[string]any)
		if node, _ := secondary["node"].(string); nodes[node] != "" {
			secondary["node"] = nodes[node]
		}
	}
	// Kubernetes' name of the block
	return etcdObject(kind, strings.Trim(strings.NewReplacer(".", "-", ":", "-").Replace(name), "-"), spec)
}

func etcdObject(kind store.Kind, name string, spec map[string]any) (store.Object, error) {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": kind.Group + "/" + kind.Version, "kind": kind.Kind, "metadata": map[string]any{"name": name}, "spec": spec,
	})
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(raw)
}

func etcdInvalid(key string, err error) error {
	return model.Errorf(model.CodeDecode, "compare with `calicoctl ipam check`", "%s: %w", key, err)
}
