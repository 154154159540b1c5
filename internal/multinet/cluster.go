// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// The annotations.
const (
	// NetworksKey has the networks that a pod requests.
	NetworksKey = model.NetworksAnnotation
	// DefaultKey has a pod's first network, instead of the cluster's.
	DefaultKey = "v1.multus-cni.io/default-network"
	// StatusKey has the pod's interfaces and addresses.
	StatusKey = "k8s.v1.cni.cncf.io/network-status"
	// ResourceKey is, on a network, the resource of the devices that its interfaces are made of.
	ResourceKey = "k8s.v1.cni.cncf.io/resourceName"
)

// Cluster reads pods and networks: from a cache, else by one bounded request. An error wraps store.ErrNotFound if the
// object does not exist for certain.
type Cluster interface {
	Pod(ctx context.Context, ref model.PodRef) (model.Pod, error)
	Network(ctx context.Context, namespace, name string) (model.NetworkAttachment, error)
}

// Namespaces is implemented by a Cluster that can read namespaces, too.
type Namespaces interface {
	Namespace(ctx context.Context, name string) (model.Namespace, error)
}

// VMs is implemented by a Cluster that can read KubeVirt's virtual machines, too.
type VMs interface {
	// VMInstance returns a VirtualMachineInstance. The error wraps store.ErrNotFound if there is none.
	VMInstance(ctx context.Context, namespace, name string) (store.Object, error)
}

// Reporter reports the result of an ADD to the pod. Both methods are called after the answer and may be slow.
type Reporter interface {
	// Annotate merges annotations into the pod's; an empty value takes one away. A pod that is gone, or that is another
	// one of that name by now, is no error.
	Annotate(ctx context.Context, pod model.PodRef, annotations map[string]string) error
	Event(ctx context.Context, pod model.PodRef, e model.Event) error
}
