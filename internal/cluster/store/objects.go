// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// Kind names the objects of one kind. Version and Resource are for places that have to be asked by URL.
type Kind struct {
	Group, Version, Kind, Resource string
	Namespaced                     bool
}

// AddressPools are weft's pools of addresses.
func AddressPools() Kind { return Kind{Group, "v1alpha1", "AddressPool", "addresspools", false} }

// AddressBlocks are the claims of nodes on parts of a pool.
func AddressBlocks() Kind { return Kind{Group, "v1alpha1", "AddressBlock", "addressblocks", false} }

// AddressPoolRequests are what agents ask the controller for about pools.
func AddressPoolRequests() Kind {
	return Kind{Group, "v1alpha1", "AddressPoolRequest", "addresspoolrequests", false}
}

// AddressReservations are addresses that people keep back.
func AddressReservations() Kind {
	return Kind{Group, "v1alpha1", "AddressReservation", "addressreservations", false}
}

// AddressClaims are addresses that stay with a name.
func AddressClaims() Kind { return Kind{Group, "v1alpha1", "AddressClaim", "addressclaims", true} }

// IPAMClaims are addresses that stay with a workload (k8snetworkplumbingwg/ipamclaims).
func IPAMClaims() Kind {
	return Kind{"k8s.cni.cncf.io", "v1alpha1", "IPAMClaim", "ipamclaims", true}
}

// VirtualMachines are KubeVirt's.
func VirtualMachines() Kind {
	return Kind{"kubevirt.io", "v1", "VirtualMachine", "virtualmachines", true}
}

// VirtualMachineInstances are KubeVirt's machines that run, or are to run: one of a VirtualMachine has its name.
func VirtualMachineInstances() Kind {
	return Kind{"kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances", true}
}

// WhereaboutsPools are what whereabouts has allocated.
func WhereaboutsPools() Kind {
	return Kind{"whereabouts.cni.cncf.io", "v1alpha1", "IPPool", "ippools", true}
}

// WhereaboutsReservations are addresses that whereabouts has given whatever the range: each object's name is one.
func WhereaboutsReservations() Kind {
	return Kind{
		"whereabouts.cni.cncf.io", "v1alpha1", "OverlappingRangeIPReservation", "overlappingrangeipreservations", true,
	}
}

// WhereaboutsSlices are ranges of which whereabouts gives each node a slice.
func WhereaboutsSlices() Kind {
	return Kind{"whereabouts.cni.cncf.io", "v1alpha1", "NodeSlicePool", "nodeslicepools", true}
}

// NetworkAttachments are the networks that pods ask for beside the cluster's (k8snetworkplumbingwg).
func NetworkAttachments() Kind {
	return Kind{"k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions", true}
}

// Nodes are the machines.
func Nodes() Kind { return Kind{"", "v1", "Node", "nodes", false} }

// Pods are the pods of all nodes.
func Pods() Kind { return Kind{"", "v1", "Pod", "pods", true} }

// Namespaces are the cluster's.
func Namespaces() Kind { return Kind{"", "v1", "Namespace", "namespaces", false} }

// NetworkPolicies are Kubernetes' own.
func NetworkPolicies() Kind {
	return Kind{"networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true}
}

// ClusterNetworkPolicies are those of the whole cluster (network-policy-api).
func ClusterNetworkPolicies() Kind {
	return Kind{"policy.networking.k8s.io", "v1alpha2", "ClusterNetworkPolicy", "clusternetworkpolicies", false}
}

// MultiNetworkPolicies are about the networks beside the cluster's (k8snetworkplumbingwg).
func MultiNetworkPolicies() Kind {
	return Kind{"k8s.cni.cncf.io", "v1beta1", "MultiNetworkPolicy", "multi-networkpolicies", true}
}

// NodeEndpoints are the addresses that nodes have given their pods, one object a node.
func NodeEndpoints() Kind { return Kind{Group, "v1alpha1", "NodeEndpoints", "nodeendpoints", false} }

// Group is the API group of weft's own kinds.
const Group = "weft.dev"

// Of tells whether the key names an object of the kind.
func (k Key) Of(kind Kind) bool { return k.Group == kind.Group && k.Kind == kind.Kind }

// Key names an object of the kind.
func (k Kind) Key(namespace, name string) Key {
	return Key{Group: k.Group, Kind: k.Kind, Namespace: namespace, Name: name}
}

// Objects is a place where objects of any kind are read and written one by one. An error wraps ErrNotFound, ErrExists
// or ErrConflict where it is one of these; after any other error of a write nobody knows whether it was done.
type Objects interface {
	Get(ctx context.Context, kind Kind, key Key) (Object, error)
	List(ctx context.Context, kind Kind) ([]Object, error)
	// Watch tells what is there, then Synced once, then every change until ctx ends, when it closes the channel.
	Watch(ctx context.Context, kinds ...Kind) (<-chan Event, error)
	// Create gives the object as it is kept.
	Create(ctx context.Context, kind Kind, o Object) (Object, error)
	// CompareAndSwap replaces the object if it still has the version, and gives it as it is kept.
	CompareAndSwap(ctx context.Context, kind Kind, version string, next Object) (Object, error)
	// CompareAndSwapStatus is CompareAndSwap for the status of a kind that keeps it apart.
	CompareAndSwapStatus(ctx context.Context, kind Kind, version string, next Object) (Object, error)
	// Delete takes the object away if it still has the version.
	Delete(ctx context.Context, kind Kind, key Key, version string) error
}

// Each visits all objects of a kind, in pages where the place has pages: of a hundred thousand pods no more is in
// memory at once than the caller keeps.
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
