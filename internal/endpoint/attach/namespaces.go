// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// namespaces opens those that a call or a record is about, the node's beside the container's.
type namespaces struct {
	host   *kernel.Conn
	boot   string
	hostID func() (uint64, error) // of the node's
}

// id names the job's namespace and refuses the node's own.
func (n *namespaces) id(job Job) (uint64, error) {
	if job.Netns == nil {
		return 0, nil
	}
	id, err := job.Netns.ID()
	if err != nil {
		return 0, err
	}
	own, err := n.hostID()
	if err != nil {
		return 0, err
	}
	if id == own && !job.OwnNetns {
		return 0, model.Faultf(model.CodeInvalidNetns, "name the container's namespace, or set CNI_NETNS_OVERRIDE=1",
			"CNI_NETNS %q is the namespace of the node itself", job.Request.Netns)
	}
	return id, nil
}

// open opens the container's namespace beside the node's.
func (n *namespaces) open(ns *netns.NS) (kernel.Spaces, func(), error) {
	s := kernel.Spaces{Host: n.host, PodNS: ns}
	if ns == nil {
		return s, func() {}, nil
	}
	pod, err := kernel.Dial(ns)
	if err != nil {
		return s, nil, fmt.Errorf("namespace %s: %w", ns.Path(), err)
	}
	s.Pod = pod
	return s, func() { _ = pod.Close() }, nil
}

// ofRecord opens the namespaces of a record. The container's is left out when the path names another one by now: a
// link of that name there is somebody else's.
func (n *namespaces) ofRecord(rec Record) (kernel.Spaces, func()) {
	alone := kernel.Spaces{Host: n.host}
	if rec.Request.Netns == "" || rec.NetnsID == 0 || rec.Boot != n.boot {
		return alone, func() {}
	}
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return alone, func() {}
	}
	id, err := ns.ID()
	if err != nil || id != rec.NetnsID {
		_ = ns.Close()
		return alone, func() {}
	}
	s, done, err := n.open(ns)
	if err != nil {
		_ = ns.Close()
		return alone, func() {}
	}
	return s, func() { done(); _ = ns.Close() }
}

// forDel prefers the namespace that the caller has open.
func (n *namespaces) forDel(job Job, rec Record) (kernel.Spaces, func()) {
	if job.Netns != nil {
		if id, err := job.Netns.ID(); err == nil && id == rec.NetnsID {
			if s, done, err := n.open(job.Netns); err == nil {
				return s, done
			}
		}
	}
	return n.ofRecord(rec)
}

func hostID() (uint64, error) {
	ns, err := netns.Current()
	if err != nil {
		return 0, err
	}
	defer func() { _ = ns.Close() }()
	return ns.ID()
}
