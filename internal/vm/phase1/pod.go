// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"strconv"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/netns"
)

// Identity names a namespace among all of a boot: the number of its inode is that of another one when it has gone.
func Identity(ns *netns.NS) (string, error) {
	inode, err := ns.ID()
	if err != nil {
		return "", err
	}
	cookie, err := ns.Cookie()
	return strconv.FormatUint(inode, 10) + "-" + strconv.FormatUint(cookie, 10), err
}

// dial opens the node's namespace, which is this process's, and the pod's, which may be gone.
func dial(ns *netns.NS) (s kernel.Spaces, closeAll func(), err error) {
	if s.Host, err = kernel.Dial(nil); err != nil {
		return s, nil, err
	}
	closeAll = func() { _ = s.Host.Close() }
	if ns == nil {
		return s, closeAll, nil
	}
	if s.Pod, err = kernel.Dial(ns); err != nil {
		closeAll()
		return s, nil, err
	}
	s.PodNS = ns
	return s, func() { _ = s.Pod.Close(); _ = s.Host.Close() }, nil
}
