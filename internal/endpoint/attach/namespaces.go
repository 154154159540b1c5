// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// namespaces opens the network namespaces of a call or a record: the node's and the container's.
type namespaces struct {
	host   *kernel.Conn
	boot   string
	hostID func() (uint64, error) // inode of the node's namespace
}

// id returns the inode of the job's namespace, and an error if it is the node's own.
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
		return 0, model.Errorf(model.CodeInvalidNetns, "name the container's namespace, or set CNI_NETNS_OVERRIDE=1",
			"CNI_NETNS %q is the namespace of the node itself", job.Request.Netns)
	}
	return id, nil
}

// open opens the container's namespace.
func (n *namespaces) open(ns *netns.NS) (kernel.Spaces, func(), error) {
	s := kernel.Spaces{Host: n.host, PodNS: ns}
	if ns == nil {
		return s, func() {}, nil
	}
	pod, err := kernel.Dial(ns)
	if err != nil {
		return s, nil, fmt.Errorf("namespace %s: %w", ns.Path(), err)
	}
	pod.Programs = n.host.Programs
	s.Pod = pod
	return s, func() { _ = pod.Close() }, nil
}

// ofRecord opens the namespaces of a record. The container's is left out if the path refers to another namespace by
// now: a link of that name there is not ours.
func (n *namespaces) ofRecord(rec Record) (kernel.Spaces, func()) {
	hostOnly := kernel.Spaces{Host: n.host}
	if rec.Request.Netns == "" || rec.NetnsID == 0 || rec.Boot != n.boot {
		return hostOnly, func() {}
	}
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return hostOnly, func() {}
	}
	id, err := ns.ID()
	if err != nil || id != rec.NetnsID {
		_ = ns.Close()
		return hostOnly, func() {}
	}
	s, done, err := n.open(ns)
	if err != nil {
		_ = ns.Close()
		return hostOnly, func() {}
	}
	return s, func() { done(); _ = ns.Close() }
}

// forDel is ofRecord for a DEL; it prefers the namespace that the caller has open.
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
