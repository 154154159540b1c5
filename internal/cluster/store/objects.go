// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// Kind identifies a kind of objects. Version and Resource are for stores with URLs.
type Kind struct {
	Group, Version, Kind, Resource string
	Namespaced                     bool
}

// AddressPools are weft's pools of addresses.
func AddressPools() Kind { return Kind{Group, "v1alpha1", "AddressPool", "addresspools", false} }

// AddressBlocks are parts of a pool with affinity to a node.
func AddressBlocks() Kind { return Kind{Group, "v1alpha1", "AddressBlock", "addressblocks", false} }

// AddressPoolRequests are requests of agents to the controller about pools.
func AddressPoolRequests() Kind {
	return Kind{Group, "v1alpha1", "AddressPoolRequest", "addresspoolrequests", false}
}

// AddressReservations are addresses that operators reserve.
func AddressReservations() Kind {
	return Kind{Group, "v1alpha1", "AddressReservation", "addressreservations", false}
}

// AddressClaims are addresses that are kept for a name.
func AddressClaims() Kind { return Kind{Group, "v1alpha1", "AddressClaim", "addressclaims", true} }

// IPAMClaims are addresses that are kept for a workload (k8snetworkplumbingwg/ipamclaims).
func IPAMClaims() Kind {
	return Kind{"k8s.cni.cncf.io", "v1alpha1", "IPAMClaim", "ipamclaims", true}
}

// VirtualMachines are KubeVirt's.
func VirtualMachines() Kind {
	return Kind{"kubevirt.io", "v1", "VirtualMachine", "virtualmachines", true}
}

// VirtualMachineInstances are KubeVirt's running or starting VMs: one of a VirtualMachine has its name.
func VirtualMachineInstances() Kind {
	return Kind{"kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances", true}
}

// VirtualMachineInstanceMigrations are KubeVirt's live migrations.
func VirtualMachineInstanceMigrations() Kind {
	return Kind{"kubevirt.io", "v1", "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations", true}
}

// KubeVirts are configurations of KubeVirt: a cluster has one.
func KubeVirts() Kind { return Kind{"kubevirt.io", "v1", "KubeVirt", "kubevirts", true} }

// WhereaboutsPools are the allocations of whereabouts.
func WhereaboutsPools() Kind {
	return Kind{"whereabouts.cni.cncf.io", "v1alpha1", "IPPool", "ippools", true}
}

// WhereaboutsReservations are addresses that whereabouts has allocated across ranges: each object's name is one.
func WhereaboutsReservations() Kind {
	return Kind{
		"whereabouts.cni.cncf.io", "v1alpha1", "OverlappingRangeIPReservation", "overlappingrangeipreservations", true,
	}
}

// WhereaboutsSlices are ranges of which whereabouts assigns each node a slice.
func WhereaboutsSlices() Kind {
	return Kind{"whereabouts.cni.cncf.io", "v1alpha1", "NodeSlicePool", "nodeslicepools", true}
}

// NetworkAttachments are the further networks that pods request (k8snetworkplumbingwg).
func NetworkAttachments() Kind {
	return Kind{"k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions", true}
}

// Nodes are the cluster's nodes.
func Nodes() Kind { return Kind{"", "v1", "Node", "nodes", false} }

// Pods are the pods of all nodes.
func Pods() Kind { return Kind{"", "v1", "Pod", "pods", true} }

// Services are the cluster's.
func Services() Kind { return Kind{"", "v1", "Service", "services", true} }

// ServiceNameLabel is the label of an EndpointSlice with the name of its Service.
const ServiceNameLabel = "kubernetes.io/service-name"

// EndpointSlices are the objects by which kube-proxy translates a Service's address.
func EndpointSlices() Kind {
	return Kind{"discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true}
}

// Namespaces are the cluster's.
func Namespaces() Kind { return Kind{"", "v1", "Namespace", "namespaces", false} }

// ServiceAccounts are those of pods.
func ServiceAccounts() Kind { return Kind{"", "v1", "ServiceAccount", "serviceaccounts", true} }

// NetworkPolicies are Kubernetes' own.
func NetworkPolicies() Kind {
	return Kind{"networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true}
}

// ClusterNetworkPolicies are those of the whole cluster (network-policy-api).
func ClusterNetworkPolicies() Kind {
	return Kind{"policy.networking.k8s.io", "v1alpha2", "ClusterNetworkPolicy", "clusternetworkpolicies", false}
}

// MultiNetworkPolicies are policies for further networks (k8snetworkplumbingwg).
func MultiNetworkPolicies() Kind {
	return Kind{"k8s.cni.cncf.io", "v1beta1", "MultiNetworkPolicy", "multi-networkpolicies", true}
}

// NodeEndpoints are the endpoints of a node's pods, one object per node.
func NodeEndpoints() Kind { return Kind{Group, "v1alpha1", "NodeEndpoints", "nodeendpoints", false} }

// Group is the API group of weft's own kinds.
const Group = "weft.dev"

// Of reports whether the key is of the kind.
func (k Key) Of(kind Kind) bool { return k.Group == kind.Group && k.Kind == kind.Kind }

// Key names an object of the kind.
func (k Kind) Key(namespace, name string) Key {
	return Key{Group: k.Group, Kind: k.Kind, Namespace: namespace, Name: name}
}

// Objects is a store in which objects of any kind are read and written one by one. Errors wrap ErrNotFound, ErrExists
// or ErrConflict; after any other error of a write its outcome is unknown.
type Objects interface {
	Get(ctx context.Context, kind Kind, key Key) (Object, error)
	List(ctx context.Context, kind Kind) ([]Object, error)
	// Watch sends all objects, then Synced once, then every change until ctx ends, when it closes the channel.
	Watch(ctx context.Context, kinds ...Kind) (<-chan Event, error)
	// Create returns the object as stored.
	Create(ctx context.Context, kind Kind, o Object) (Object, error)
	// CompareAndSwap replaces the object if it still has the version, and returns it as stored.
	CompareAndSwap(ctx context.Context, kind Kind, version string, next Object) (Object, error)
	// CompareAndSwapStatus is CompareAndSwap for the status of a kind with a status subresource.
	CompareAndSwapStatus(ctx context.Context, kind Kind, version string, next Object) (Object, error)
	// Delete deletes the object if it still has the version.
	Delete(ctx context.Context, kind Kind, key Key, version string) error
}

// MayWatch reports whether the store allows to watch a kind. A store without users does.
func MayWatch(ctx context.Context, objects Objects, kind Kind) (bool, error) {
	asked, is := objects.(interface {
		MayWatch(ctx context.Context, kind Kind) (bool, error)
	})
	if !is {
		return true, nil
	}
	return asked.MayWatch(ctx, kind)
}

// Each visits all objects of a kind, in pages if the store supports them, so that a hundred thousand pods are not in
// memory at once.
func Each(ctx context.Context, objects Objects, kind Kind, visit func(Object)) error {
	if paged, is := objects.(interface {
		Each(ctx context.Context, kind Kind, visit func(Object)) error
	}); is {
		return paged.Each(ctx, kind, visit)
	}
	all, err := objects.List(ctx, kind)
	if err != nil {
		return err
	}
	for _, o := range all {
		visit(o)
	}
	return nil
}
