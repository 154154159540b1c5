// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/sockets"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// leaseScript is udhcpc's script: it configures the guest and writes down its lease.
const leaseScript = `#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr add "$ip/$mask" dev eth0
if [ -n "$staticroutes" ]; then
	set -- $staticroutes
	while [ $# -ge 2 ]; do
		if [ "$2" = 0.0.0.0 ]; then ip route add "$1" dev eth0; else ip route add "$1" via "$2" dev eth0; fi
		shift 2
	done
else
	ip route add default via "$router" dev eth0
fi
ip link set eth0 mtu "$mtu"
echo "$ip/$mask $mtu $hostname $dns" > "$LEASE"
`

// TestLease: an ordinary DHCP client in the guest gets a working configuration by each binding, in each kind of pod.
func TestLease(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		nettest.SkipMissing(t, "there is no busybox, whose udhcpc would be the guest's client")
	}
	for attached, attach := range worlds() {
		for _, binding := range []model.VMBinding{model.VMMasquerade, model.VMBridge, model.VMDirect} {
			t.Run(fmt.Sprintf("%s/%s", attached, binding), func(t *testing.T) {
				w := newWorld(t)
				attach(w)
				far, want := "10.244.1.1", "10.0.2.2/24 1450 vm1 10.96.0.10\n"
				if attached == "routed" {
					far = "169.254.1.1"
				}
				if binding != model.VMMasquerade {
					want = map[string]string{"flannel": "10.244.1.5/24", "routed": "10.244.1.5/32"}[attached] +
						want[len("10.0.2.2/24"):]
				}
				in := testInput(binding)
				in.DNS.Nameservers = []string{"10.96.0.10"}
				n := w.start(in).Networks[0]
				guest := nettest.NS(t, "guest")
				nettest.Relay(t, w.pod, n.Device.Target, false, guest, n.Device.MAC)
				w.serveGuest(*n.Guest)
				if got := w.client(guest, busybox); got != want {
					t.Errorf("leased %q, want %q", got, want)
				}
				w.ping(guest, far)
				w.serve(guest, ":80", "guest")
				w.expectReply(w.far, "10.244.1.5:80", "guest "+far)
			})
		}
	}
}

// serveGuest serves DHCP and RA to the guest until the test ends.
func (w *world) serveGuest(g model.GuestConfig) {
	w.t.Helper()
	s, err := sockets.Open(w.pod, g)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- serve.Config{Log: slog.New(slog.DiscardHandler)}.Run(ctx, []serve.Interface{{Guest: g, Sockets: s}})
	}()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// client runs a DHCP client in a guest until it has a lease, and returns the lease.
func (w *world) client(guest *netns.NS, busybox string) string {
	w.t.Helper()
	dir := w.t.TempDir()
	script, lease := filepath.Join(dir, "script"), filepath.Join(dir, "lease")
	if err := os.WriteFile(script, []byte(leaseScript), 0o700); err != nil {
		w.t.Fatal(err)
	}
	out, err := nettest.Try(guest, "env", "LEASE="+lease, "timeout", "60", busybox, "udhcpc", "-i", "eth0", "-n", "-q",
		"-f", "-t", "20", "-T", "1", "-s", script,
		"-O", "mtu", "-O", "staticroutes", "-O", "hostname")
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(lease)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return string(b)
}

// TestRouter: the guest's kernel learns its default route from router advertisements.
func TestRouter(t *testing.T) {
	for binding, own := range map[model.VMBinding]string{
		model.VMMasquerade: "fd10:0:2::2/128", model.VMDirect: "fd00:1::5/128",
	} {
		t.Run(string(binding), func(t *testing.T) { router(t, binding, own) })
	}
}

func router(t *testing.T, binding model.VMBinding, own string) {
	w := newWorld(t)
	w.flannel()
	n := w.start(testInput(binding)).Networks[0]
	guest := nettest.NS(t, "guest")
	w.serveGuest(*n.Guest)
	nettest.Relay(t, w.pod, n.Device.Target, false, guest, n.Device.MAC)
	w.ip(guest, "addr add "+own+" dev eth0 nodad")
	for range 600 {
		if strings.Contains(nettest.Run(t, guest, "ip", "-6", "route", "show", "default"), "via fe80::1 dev eth0") {
			w.ping(guest, "fd00:1::1")
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	const counters = "grep -E '(Type13[3-6]|InHdrErrors|OutDiscards|OutNoRoutes)' /proc/net/snmp6; ip -6 neigh; ip -6 route show dev k6t-eth0 2>/dev/null; true"
	t.Errorf("the guest has no default route:\n%s\nits:\n%s\nthe pod's:\n%s", nettest.Run(t, guest, "ip", "-6", "route"),
		nettest.Run(t, guest, "sh", "-c", counters), nettest.Run(t, w.pod, "sh", "-c", counters))
}
