// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// Job is what one call is about.
type Job struct {
	Network model.Network
	Request model.Request
	// Prev is the result that the caller handed in.
	Prev *model.Result
	// Netns is the container's namespace, nil when it is gone.
	Netns *netns.NS
	// OwnNetns permits that Netns is the node's own (CNI_NETNS_OVERRIDE).
	OwnNetns bool
	// NamespaceLabels are those of the pod's namespace, nil where they are not known.
	NamespaceLabels map[string]string
	// Parallel permits AddAll to execute foreign plugins beside those of its neighbors that permit it, too.
	Parallel bool

	// saves are the delegates to be remembered; see resolver.
	saves []save
}

// save is a delegate to be written down, in the first of the paths that nobody has.
type save struct {
	paths []string
	text  string
}
