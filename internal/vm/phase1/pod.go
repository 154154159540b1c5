// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"strconv"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/redirect"
	"github.com/weft-net/weft/internal/netns"
)

// Identity returns a name for a namespace that is unique within a boot: its inode number alone may be reused.
func Identity(ns *netns.NS) (string, error) {
	inode, err := ns.ID()
	if err != nil {
		return "", err
	}
	cookie, err := ns.Cookie()
	return strconv.FormatUint(inode, 10) + "-" + strconv.FormatUint(cookie, 10), err
}

// dial opens the node's namespace, which is this process's, and the pod's; ns is nil if the pod is gone.
func dial(ns *netns.NS) (s kernel.Spaces, closeAll func(), err error) {
	if s.Host, err = kernel.Dial(nil); err != nil {
		return s, nil, err
	}
	s.Host.Programs = redirect.Joins{}
	closeAll = func() { _ = s.Host.Close() }
	if ns == nil {
		return s, closeAll, nil
	}
	if s.Pod, err = kernel.Dial(ns); err != nil {
		closeAll()
		return s, nil, err
	}
	s.Pod.Programs, s.PodNS = s.Host.Programs, ns
	return s, func() { _ = s.Pod.Close(); _ = s.Host.Close() }, nil
}
