// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func TestSigns(t *testing.T) {
	defer goleak.VerifyNone(t)
	ns := nettest.NS(t, "node")
	run := func(c string) { nettest.Run(t, ns, append([]string{"ip"}, strings.Fields(c)...)...) }
	run("link add one type veth peer name two")
	var mu sync.Mutex
	var heard []watch.Sign
	ctx, cancel := context.WithCancel(t.Context())
	signs, err := watch.Signs(ctx, ns, func(s watch.Sign) bool {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, s)
		return s.Kind == watch.Route && s.Protocol == 119
	})
	if err != nil {
		t.Fatal(err)
	}
	run("link set one up")
	run("link set two up")
	run("addr add 192.0.2.1/24 dev one")
	select {
	case <-signs:
		t.Error("a token for a sign that was not wanted")
	case <-time.After(50 * time.Millisecond):
	}
	for _, change := range []struct {
		command string
		gone    bool
	}{
		{"route add 198.51.100.0/24 via 192.0.2.9 dev one proto 119 metric 77", false},
		{"route del 198.51.100.0/24", true},
		{"-6 route add 2001:db8::/64 dev one proto 119 metric 77", false},
		{"-6 route del 2001:db8::/64", true},
	} {
		run(change.command)
		select {
		case <-signs:
		case <-time.After(3 * time.Second):
			t.Fatalf("no token after ip %s", change.command)
		}
		mu.Lock()
		last := heard[len(heard)-1]
		mu.Unlock()
		if want := (watch.Sign{Kind: watch.Route, Gone: change.gone, Protocol: 119, Metric: 77, Table: 254}); last != want {
			t.Errorf("ip %s: heard %+v, want %+v", change.command, last, want)
		}
	}
	cancel()
	for range signs {
	}
	links, addrs := map[string]bool{}, map[string]bool{}
	for _, s := range heard {
		links[s.Link], addrs[s.Addr.String()] = true, true
	}
	if !links["one"] || !links["two"] || !addrs["192.0.2.1"] {
		t.Errorf("heard links %v, addresses %v", links, addrs)
	}
}
