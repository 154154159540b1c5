// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
)

// parseDelegates parses the networks in a call's configuration.
func parseDelegates(r *multinet.Resolver, call cni.Call) ([]multinet.Attachment, error) {
	s, err := multinet.ParseSettings(call, "")
	if err != nil {
		return nil, err
	}
	return r.Delegates(call, s)
}

func job(a multinet.Attachment, ns *netns.NS) attach.Job {
	return attach.Job{
		Network: a.Network, Request: a.Request, Prev: a.Prev, Netns: ns, Parallel: a.Parallel,
		NamespaceLabels: a.NamespaceLabels,
	}
}
