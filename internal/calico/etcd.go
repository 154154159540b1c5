// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
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
	for _, resource := range []string{"ippools", "ipreservations", "nodes", profiles} {
		out = append(out, etcdResource+resource+"/")
	}
	for _, kind := range etcdPolicies() {
		out = append(out, etcdResource+kind.Resource+"/")
	}
	return out
}

// profiles are of a kind that Kubernetes does not have: Calico makes them of namespaces and service accounts.
const profiles = "profiles"

// accountProfile begins the names of the profiles of service accounts.
const accountProfile = "ksa."

// etcdPolicies are the kinds that decide which packets pass, as Kubernetes stores them, in the order in which they are to
// be created.
func etcdPolicies() (out []store.Kind) {
	for _, k := range slices.Concat(Tiers(), NetworkSets(), GlobalNetworkSets(), HostEndpoints(), FelixConfigurations(),
		ControllersConfigurations(), NetworkPolicies(), GlobalNetworkPolicies(), StagedKinds()) {
		if k.Group == kinds("", "", false)[0].Group {
			out = append(out, k)
		}
	}
	return out
}

// Etcd is what Calico has stored in an etcd.
type Etcd struct {
	// Objects are its pools, reservations, configuration and blocks, as the group projectcalico.org has them.
	Objects []store.Object
	// Policies are the objects that decide which packets pass, as Kubernetes stores them, without those that Calico has
	// copied from Kubernetes or creates itself.
	Policies []store.Object
	// Profiles are those with rules of their own, which Kubernetes does not have.
	Profiles []string
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
	out := Etcd{}
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
		case strings.HasPrefix(key, etcdResource) && resource == profiles:
			is = false
			if !strings.HasPrefix(name, namespaceProfile) && !strings.HasPrefix(name, accountProfile) && name != allowProfile {
				out.Profiles = append(out.Profiles, name)
			}
		default:
			is = false
		}
		if err != nil {
			return out, fmt.Errorf("key %s: %w", key, err)
		}
		if is {
			out.Objects = append(out.Objects, o)
		}
	}
	out.Policies, err = etcdPolicyObjects(values, nodes)
	return out, err
}

// etcdPolicyObjects returns the objects that decide which packets pass, as Kubernetes stores them.
func etcdPolicyObjects(values, nodes map[string]string) (out []store.Object, err error) {
	for _, kind := range etcdPolicies() {
		prefix := etcdResource + kind.Resource + "/"
		for _, key := range slices.Sorted(maps.Keys(values)) {
			name, is := strings.CutPrefix(key, prefix)
			if !is || ownPolicy(kind.Resource, name) {
				continue
			}
			o, err := etcdPolicy(kind, name, values[key], nodes)
			if err != nil {
				return nil, fmt.Errorf("key %s: %w", key, err)
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// etcdPolicy returns an object of the etcd as one of Kubernetes. name is that in the key, with the namespace.
func etcdPolicy(kind store.Kind, name, text string, nodes map[string]string) (store.Object, error) {
	var in struct {
		Metadata struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec map[string]any `json:"spec"`
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return store.Object{}, etcdInvalid(name, err)
	}
	metadata := map[string]any{}
	if kind.Namespaced {
		metadata["namespace"], name, _ = strings.Cut(name, "/")
	}
	switch node, of := in.Spec["node"].(string); {
	case kind.Kind == HostEndpoints()[0].Kind && of && nodes[node] != "":
		in.Spec["node"] = nodes[node]
	case kind.Kind == FelixConfigurations()[0].Kind:
		if node, is := strings.CutPrefix(name, nodeConfiguration); is && nodes[node] != "" {
			name = nodeConfiguration + nodes[node]
		}
	}
	metadata["name"] = name
	if len(in.Metadata.Labels) > 0 {
		metadata["labels"] = in.Metadata.Labels
	}
	if len(in.Metadata.Annotations) > 0 {
		metadata["annotations"] = in.Metadata.Annotations
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": kind.Group + "/" + kind.Version, "kind": kind.Kind, "metadata": metadata, "spec": in.Spec,
	})
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(raw)
}

// nodeConfiguration begins the names of the configurations of one node.
const nodeConfiguration = "node."

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

// Warnings are what of the etcd is not enforced: policies that are not written to a file, those of which a part is not
// understood, and rules of profiles.
// objects are the cluster's others.
func (e Etcd) Warnings(ctx context.Context, objects store.Objects, written bool) ([]string, error) {
	var out []string
	if len(e.Policies) > 0 && !written {
		var names []string
		for _, o := range e.Policies {
			names = append(names, o.Key.String())
		}
		out = append(out, fmt.Sprintf("etcd has policies that are not imported and will not be enforced: %s; write them to a "+
			"file with --calico-policies", Summary(names)))
	}
	faults, err := Unenforced(ctx, store.Overlay(objects, slices.Concat(PolicyKinds()...), e.Policies))
	if err != nil {
		return nil, err
	}
	for _, fault := range faults {
		out = append(out, "not enforced: "+fault)
	}
	for _, name := range e.Profiles {
		out = append(out, fmt.Sprintf("not enforced: Profile %s (Kubernetes has no profiles; write its rules as a "+
			"GlobalNetworkPolicy)", name))
	}
	return out, nil
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
