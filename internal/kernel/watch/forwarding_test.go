// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/nettest"
)

// Changes of forwarding are reported, for both families; links with their own settings are not mistaken for them.
func TestForwarding(t *testing.T) {
	defer goleak.VerifyNone(t)
	ns := nettest.NS(t, "node")
	nettest.Run(t, ns, "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0")
	ctx, cancel := context.WithCancel(t.Context())
	signs, err := watch.Events(ctx, ns, func(s watch.Event) bool { return s.Kind == watch.Forwarding })
	if err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, ns, "ip", "link", "add", "one", "type", "veth", "peer", "name", "two")
	nettest.Run(t, ns, "sysctl", "-qw", "net.ipv4.conf.one.forwarding=1")
	nettest.Run(t, ns, "ip", "link", "del", "one")
	select {
	case <-signs:
		t.Error("a link's settings are heard")
	case <-time.After(50 * time.Millisecond):
	}
	for _, change := range []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.ip_forward=0"} {
		nettest.Run(t, ns, "sysctl", "-qw", change)
		select {
		case <-signs:
		case <-time.After(time.Minute):
			t.Errorf("%s is not heard", change)
		}
	}
	cancel()
	for range signs {
	}
}
