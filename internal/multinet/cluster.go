// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"

	"github.com/weft-net/weft/internal/model"
)

// The annotations.
const (
	// NetworksKey is what a pod asks for.
	NetworksKey = "k8s.v1.cni.cncf.io/networks"
	// DefaultKey is what a pod wants as its first network instead of the cluster's.
	DefaultKey = "v1.multus-cni.io/default-network"
	// StatusKey is what the pod has got.
	StatusKey = "k8s.v1.cni.cncf.io/network-status"
	// ResourceKey is, on a network, the resource of the devices that its interfaces are made of.
	ResourceKey = "k8s.v1.cni.cncf.io/resourceName"
)

// Cluster is where pods and networks are looked up: from memory where they are known, else by one bounded question. An
// error wraps store.ErrNotFound when there certainly is no such object.
type Cluster interface {
	Pod(ctx context.Context, ref model.PodRef) (model.Pod, error)
	Network(ctx context.Context, namespace, name string) (model.NetworkAttachment, error)
}

// Namespaces is what a Cluster is that knows namespaces, too.
type Namespaces interface {
	Namespace(ctx context.Context, name string) (model.Namespace, error)
}

// Reporter writes what became of a pod. Both are called behind the answer and may take their time.
type Reporter interface {
	// Annotate merges annotations into the pod's; an empty value takes one away. A pod that is gone, or that is another
	// one of that name by now, is no error.
	Annotate(ctx context.Context, pod model.PodRef, annotations map[string]string) error
	Event(ctx context.Context, pod model.PodRef, e model.Event) error
}
