// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// Job is one network of a call.
type Job struct {
	Network model.Network
	Request model.Request
	// Prev is the caller's prevResult.
	Prev *model.Result
	// Netns is the container's network namespace, nil if it is gone.
	Netns *netns.NS
	// OwnNetns permits that Netns is the node's own (CNI_NETNS_OVERRIDE).
	OwnNetns bool
	// NamespaceLabels are the labels of the pod's Kubernetes namespace, nil if unknown.
	NamespaceLabels map[string]string
	// Parallel permits AddAll to execute foreign plugins concurrently with those of adjacent jobs that permit it too.
	Parallel bool
	// Abandoned reports whether the caller has disconnected; nil means never. AddAll asks the first job once it holds the
	// container's lock: the DEL that follows a killed caller waits for that lock, or has had it before.
	Abandoned func() bool

	// saves are the delegates to be saved; see resolver.
	saves []savedDelegate
}

// savedDelegate is a delegate to be saved, in the first of the paths that is unused.
type savedDelegate struct {
	paths []string
	text  string
}
