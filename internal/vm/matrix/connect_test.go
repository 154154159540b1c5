// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// ping retries until a reply comes: the first packets may meet a port that is not ready.
func ping(t *testing.T, from *netns.NS, to netip.Addr) {
	t.Helper()
	var out string
	var err error
	for range 10 {
		if out, err = nettest.Try(from, "ping", "-n", "-c", "1", "-W", "2", to.String()); err == nil {
			return
		}
	}
	t.Errorf("ping %s: %v\n%s", to, err, out)
}

func serve(t *testing.T, ns *netns.NS, port int, name string) {
	t.Helper()
	nettest.ServeName(t, ns, port, name)
}

func call(ns *netns.NS, to netip.Addr, port int, limit time.Duration) string {
	return nettest.DialName(ns, to, port, limit)
}

func expectReply(t *testing.T, ns *netns.NS, to netip.Addr, port int, want string) {
	t.Helper()
	if got := call(ns, to, port, 10*time.Second); got != want {
		t.Errorf("call of %s port %d: %q, want %q", to, port, got, want)
	}
}
