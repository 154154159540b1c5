// SPDX-License-Identifier: Apache-2.0

package nflog

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// Packets that rules log to the group are received, with the rule's prefix and the addresses; other groups are not.
func TestListen(t *testing.T) {
	defer goleak.VerifyNone(t)
	ns := nettest.NS(t, "n")
	if out, err := nettest.Try(
		ns, "nft",
		"add table inet t; add chain inet t c { type filter hook output priority 0; }; add rule inet t c log group 8",
	); err != nil {
		nettest.Skip(t, "the kernel has no nflog: "+out)
	}
	nettest.Run(
		t, ns, "nft",
		`flush chain inet t c; add rule inet t c udp dport 53 log prefix "np/shop/web" group 7 drop; add rule inet t c ip6 daddr ::1 log prefix "six" group 7; add rule inet t c log group 8`,
	)
	nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan string, 100)
	l, err := Listen(ctx, ns, 7, func(p Packet) { got <- p.Prefix + " " + p.String() })
	if err != nil {
		t.Fatal(err)
	}
	_, _ = nettest.Try(ns, "bash", "-c", "echo > /dev/udp/127.0.0.1/9; echo > /dev/udp/127.0.0.1/53")
	_, _ = nettest.Try(ns, "ping", "-c1", "-W1", "::1")
	for _, want := range []string{"np/shop/web udp 127.0.0.1:", "six icmp ::1 > ::1"} {
		select {
		case line := <-got:
			if len(line) < len(want) || line[:len(want)] != want {
				t.Errorf("heard %q, want %q…", line, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nothing is heard of %q", want)
		}
	}
	for range 50 { // the group is free immediately afterwards
		l.Close()
		if l, err = Listen(ctx, ns, 7, func(Packet) {}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Listen(ctx, ns, 7, func(Packet) {}); err == nil {
		t.Error("two listen to one group")
	}
	cancel()
	<-l.Done()
}

func FuzzPacket(f *testing.F) {
	f.Add([]byte{24, 0, 9, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	f.Fuzz(func(_ *testing.T, b []byte) {
		each(b, func(p Packet) { _ = p.String() })
		p, _ := parse(b)
		_ = p.String()
	})
}
