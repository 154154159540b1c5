// SPDX-License-Identifier: Apache-2.0

package conntrack_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
)

// TestIdle: a listener that reads again after a pause, and finds nothing, reports again that it is idle: an End that came
// meanwhile waited for that, and there may be no further event.
func TestIdle(t *testing.T) {
	ns := tracking(t)
	idle := make(chan struct{}, 100)
	l, err := netlink.Listen(t.Context(), ns, netlink.Subscription{
		Protocol: unix.NETLINK_NETFILTER, Groups: netlink.Group(1), Size: 4096, Buffer: 1 << 16, // new connections
		Gather: time.Millisecond, Idle: func(*netlink.Listener) { idle <- struct{}{} },
	}, func(*netlink.Listener, netlink.Datagram) {
		for len(idle) > 0 { // those from before the event
			<-idle
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { l.Close(); <-l.Done() }()
	send(t, ns, "127.0.0.1:9", 1)
	for range 2 { // after the event, and after the pause
		select {
		case <-idle:
		case <-time.After(30 * time.Second):
			t.Fatal("the listener was busy after its last call, and did not report that it is idle")
		}
	}
}
