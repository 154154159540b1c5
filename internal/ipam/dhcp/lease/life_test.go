// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// quick makes dnsmasq request renewal immediately: its shortest lease is two minutes.
func quick(renew, rebind int) []string {
	return []string{
		range4, fmt.Sprintf("--dhcp-option=option:T1,%d", renew), fmt.Sprintf("--dhcp-option=option:T2,%d", rebind),
	}
}

// seen counts what the server has logged since the last call with reset.
func (w *wire) seen(word string) int { return strings.Count(w.log.String(), word) }

// configured adds a lease's address to the container's interface, as its plugin would.
func configured(t *testing.T, ns *netns.NS, r model.Result) {
	t.Helper()
	for _, ip := range r.IPs {
		nettest.Run(t, ns, "ip", "addr", "add", ip.Address.String(), "dev", "eth0")
	}
}

func up(t *testing.T, ns *netns.NS) bool {
	t.Helper()
	return strings.Contains(nettest.Run(t, ns, "ip", "-o", "link", "show", "eth0"), ",UP")
}

// A lease is renewed at T1 with its own server, by unicast, and again after a restart of the manager and of the server.
func TestRenew(t *testing.T) {
	w := newWire(t)
	w.serve(quick(3, 60)...)
	k := w.manager()
	ns := w.pod()
	a := req(ns, "c1", "")
	r := w.add(k, a)
	configured(t, ns, r)
	acks := func() int { return w.seen("DHCPACK") }
	discovered := w.seen("DHCPDISCOVER") // with those that the client repeated, because the server was slow
	w.until("two renewals", func() bool { return acks() >= 3 })
	if n := w.seen("DHCPDISCOVER"); n != discovered {
		t.Errorf("%d times discovered: the lease was not renewed but got anew", n)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k = w.manager()
	w.stop()
	w.serve(quick(3, 60)...)
	before := acks()
	w.until("a renewal after the restarts", func() bool { return acks() > before })
	if err := k.Check(t.Context(), a, r); err != nil {
		t.Error(err)
	}
	if n := w.seen("DHCPDISCOVER"); n != discovered {
		t.Errorf("%d times discovered after the restarts", n)
	}
	w.gone(k, a)
}

func TestRenew6(t *testing.T) {
	w := newWire(t)
	w.serve(range6)
	k := w.manager()
	a := req(w.pod(), "c1", `,"ipv4":false,"ipv6":true`)
	r := w.add(k, a)
	flap(t, 1) // the lease is confirmed with any server: two minutes are too long to wait
	w.until("a rebinding", func() bool { return w.seen("DHCPREBIND") > 0 && w.seen("DHCPREPLY") > 1 })
	if err := k.Check(t.Context(), a, r); err != nil {
		t.Error(err)
	}
	w.gone(k, a)
}

// flap sets the peer of a container's link down for a moment.
func flap(t *testing.T, n int) {
	t.Helper()
	host := fmt.Sprintf("dveth%d", n)
	nettest.Run(t, nil, "ip", "link", "set", host, "down")
	time.Sleep(3 * time.Second) // the manager looks every 50 ms, on a busy host later
	nettest.Run(t, nil, "ip", "link", "set", host, "up")
}

// If its own server does not respond, the client rebinds at any server.
func TestRebind(t *testing.T) {
	w := newWire(t)
	w.serve(quick(3, 5)...)
	k := w.manager(func(c *lease.Config) { c.Exchange.Timeout = time.Second })
	ns := w.pod()
	a := req(ns, "c1", "")
	r := w.add(k, a)
	configured(t, ns, r) // the answer comes to it
	w.stop()
	// Another server with the leases of the first: what is sent to that one's MAC address is not for it.
	nettest.Run(t, nil, "ip", "link", "set", "dbr0", "address", "02:00:00:00:00:99")
	w.serve(quick(3, 60)...)
	w.until("a rebinding", func() bool { return w.seen("lease renewed") > 0 })
	if w.seen("dhcp client could not renew a lease") == 0 {
		t.Error("the lease was renewed, not rebound")
	}
	if err := k.Check(t.Context(), a, r); err != nil {
		t.Error(err)
	}
	w.gone(k, a)
}

// A server that has lost the lease refuses it, and assigns the same address again: the container is not affected.
func TestRefusedAndAllocatedAgain(t *testing.T) {
	w := newWire(t)
	w.serve(append(quick(3, 60), "--dhcp-authoritative")...)
	k := w.manager()
	ns := w.pod()
	a := req(ns, "c1", "")
	r := w.add(k, a)
	configured(t, ns, r)
	w.stop()
	if err := os.Remove(w.leases); err != nil {
		t.Fatal(err)
	}
	before := w.seen("DHCPACK")
	w.serve(append(quick(3, 60), "--dhcp-authoritative")...)
	w.until("a lease", func() bool { return w.seen("DHCPACK") > before })
	if err := k.Check(t.Context(), a, r); err != nil || !up(t, ns) {
		t.Errorf("CHECK: %v, up %t", err, up(t, ns))
	}
	w.gone(k, a)
}

// A server assigns another address, which the container cannot use: its interface is set down, the new lease is
// released, and CHECK reports it.
func TestOtherAddress(t *testing.T) {
	w := newWire(t)
	w.serve(append(quick(3, 60), "--dhcp-authoritative")...)
	k := w.manager()
	ns := w.pod()
	a := req(ns, "c1", "")
	r := w.add(k, a)
	configured(t, ns, r)
	w.stop()
	w.serve("--dhcp-range=10.9.0.150,10.9.0.199,255.255.255.0,2m", "--dhcp-authoritative")
	w.until("the loss", func() bool { return w.seen("dhcp client lost a lease; the interface goes down") > 0 })
	w.until("down", func() bool { return !up(t, ns) })
	if w.seen("DHCPNAK") == 0 {
		t.Error("nobody refused")
	}
	wantCode(t, "CHECK", k.Check(t.Context(), a, r), model.CodeDiffers, "lost", "the server assigns 10.9.0.1")
	w.until("the other lease is released", func() bool { return w.leased() == "" }) // after the interface is down
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k = w.manager()
	wantCode(t, "CHECK after a restart", k.Check(t.Context(), a, r), model.CodeDiffers, "lost")
	again := w.add(k, a) // as a new container would have it
	if show(again) == show(r) || !up(t, ns) {
		t.Errorf("ADD again: %s", show(again))
	}
	w.gone(k, a)
}

// A lease that expires without a response from any server is lost.
func TestExpired(t *testing.T) {
	w := newWire(t)
	w.serve(quick(3, 5)...)
	k := w.manager()
	ns := w.pod()
	a := req(ns, "c1", "")
	r := w.add(k, a)
	w.stop()
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	w.age(3 * time.Minute) // the manager was not running for that time
	k = w.manager(func(c *lease.Config) { c.Exchange.Timeout = time.Second })
	w.until("the loss", func() bool { return w.seen("dhcp client lost a lease; the interface goes down") > 0 })
	w.until("down", func() bool { return !up(t, ns) })
	wantCode(t, "CHECK", k.Check(t.Context(), a, r), model.CodeDiffers, "lost", "no DHCP server answered")
	if err := k.Del(t.Context(), a); err != nil || len(w.files()) > 0 {
		t.Errorf("DEL of a lost lease: %v, %v", err, w.files())
	}
}

// A namespace that is deleted while a lease in it is renewed ends at once: the answer of a silent server is not waited
// for.
func TestDeletedWhileRenewing(t *testing.T) {
	w := newWire(t)
	w.serve(quick(3, 5)...)
	k := w.manager(func(c *lease.Config) { c.Exchange.Timeout = time.Hour })
	ns := w.pod()
	a := req(ns, "c1", "")
	configured(t, ns, w.add(k, a))
	w.stop()
	w.until("a renewal", func() bool {
		sockets := nettest.Run(t, ns, "cat", "/proc/thread-self/net/packet", "/proc/thread-self/net/udp")
		return strings.Count(sockets, "\n") > 2 // besides the two heads
	})
	if err := errors.Join(ns.Close(), netns.Remove(ns.Path())); err != nil {
		t.Fatal(err)
	}
	w.until("the namespace ends", func() bool {
		_, err := nettest.Try(nil, "ip", "link", "show", fmt.Sprintf("dveth%d", w.n))
		return err != nil
	})
	w.until("the lease is forgotten", func() bool { return len(w.files()) == 0 })
}

// age makes the remembered leases older.
func (w *wire) age(by time.Duration) {
	w.t.Helper()
	for _, file := range w.files() {
		var rec map[string]any
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &rec)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		for _, g := range rec["grants"].([]any) {
			grant := g.(map[string]any)
			bound, err := time.Parse(time.RFC3339, grant["bound"].(string))
			if err != nil {
				w.t.Fatal(err)
			}
			grant["bound"] = bound.Add(-by)
		}
		if b, err = json.Marshal(rec); err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// A manager that restarts after a lease expired acquires the same address again if possible.
func TestExpiredWhileAway(t *testing.T) {
	for name, keys := range map[string]string{"IPv4": "", "IPv6": `,"ipv4":false,"ipv6":true`} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			w.serve(range4, range6)
			k := w.manager()
			ns := w.pod()
			a := req(ns, "c1", keys)
			r := w.add(k, a)
			if err := k.Close(); err != nil {
				t.Fatal(err)
			}
			w.age(3 * time.Minute)
			before := w.seen("DHCPACK") + w.seen("DHCPREPLY")
			k = w.manager()
			w.until("a lease", func() bool { return w.seen("DHCPACK")+w.seen("DHCPREPLY") > before })
			if err := k.Check(t.Context(), a, r); err != nil || !up(t, ns) {
				t.Errorf("CHECK: %v", err)
			}
			w.gone(k, a)
		})
	}
}

// TestClockSetBackWhileAway: a manager that restarts after the clock was set back renews a lease at once. By the clock it
// was received hours from now, and would be renewed long after it has ended at the server.
func TestClockSetBackWhileAway(t *testing.T) {
	for name, keys := range map[string]string{"IPv4": "", "IPv6": `,"ipv4":false,"ipv6":true`} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			w.serve(range4, range6)
			k := w.manager()
			ns := w.pod()
			a := req(ns, "c1", keys)
			r := w.add(k, a)
			configured(t, ns, r)
			if err := k.Close(); err != nil {
				t.Fatal(err)
			}
			w.age(-5 * time.Hour)
			before := w.seen("DHCPACK") + w.seen("DHCPREPLY")
			k = w.manager()
			w.until("a renewed lease", func() bool { return w.seen("DHCPACK")+w.seen("DHCPREPLY") > before })
			w.kept(k, a, r)
			w.gone(k, a)
		})
	}
}

// A link that goes down and up may be on another network: the lease is confirmed immediately.
func TestFlap(t *testing.T) {
	w := newWire(t)
	w.serve(range4)
	k := w.manager()
	ns := w.pod()
	a := req(ns, "c1", "")
	r := w.add(k, a)
	configured(t, ns, r)
	before := w.seen("DHCPACK")
	flap(t, 1)
	w.until("a confirmation", func() bool { return w.seen("DHCPACK") > before })
	if err := k.Check(t.Context(), a, r); err != nil {
		t.Error(err)
	}
	w.gone(k, a)
}

// Leases whose interface or namespace is deleted are released from the node and removed, also when that happened while
// no manager ran.
func TestGone(t *testing.T) {
	for name, kill := range map[string]func(ns *netns.NS){
		"interface": func(ns *netns.NS) { nettest.Run(t, ns, "ip", "link", "del", "eth0") },
		"namespace": func(ns *netns.NS) {
			_ = ns.Close()
			if err := netns.Remove(ns.Path()); err != nil {
				t.Error(err)
			}
		},
	} {
		for _, away := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, away %t", name, away), func(t *testing.T) {
				w := newWire(t)
				w.serve(range4)
				k := w.manager()
				ns := w.pod()
				a := req(ns, "c1", "")
				w.add(k, a)
				if away {
					if err := k.Close(); err != nil {
						t.Fatal(err)
					}
				}
				kill(ns)
				if away {
					k = w.manager()
				}
				w.until("the lease is forgotten", func() bool { return len(w.files()) == 0 })
				w.gone(k, a)
			})
		}
	}
}

// DEL of a container whose namespace is deleted releases the lease from the node.
func TestDelWithoutNamespace(t *testing.T) {
	w := newWire(t)
	w.serve(range4)
	k := w.manager(func(c *lease.Config) { c.Poll = time.Hour })
	ns := w.pod()
	a := req(ns, "c1", "")
	w.add(k, a)
	_ = ns.Close()
	if err := netns.Remove(ns.Path()); err != nil {
		t.Error(err)
	}
	a.Netns = ""
	w.gone(k, a)
}

// Many containers at the same time get distinct addresses, and no thread stays in a namespace.
func TestMany(t *testing.T) {
	w := newWire(t)
	w.serve(range4)
	k := w.manager()
	const n = 20
	var asks []ipam.Request
	for i := range n {
		asks = append(asks, req(w.pod(), fmt.Sprintf("c%d", i), ""))
	}
	results := make(chan string, n)
	for _, a := range asks {
		go func() {
			r, err := k.Add(context.Background(), a)
			results <- fmt.Sprint(show(r), err)
		}()
	}
	have := map[string]bool{}
	for range n {
		have[<-results] = true
	}
	if len(have) != n {
		t.Errorf("%d different leases: %v", len(have), have)
	}
	// A renewer may be in its namespace at this time; a thread that was left there stays.
	w.until("all threads are at home", func() bool { return threadsInOtherNamespaces(t) == 0 })
	for _, a := range asks {
		if err := k.Del(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
	w.until("release", func() bool { return w.leased() == "" })
}

// threadsInOtherNamespaces counts the threads of this process that are in another network namespace than its first.
func threadsInOtherNamespaces(t *testing.T) (n int) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if ns, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net"); err == nil && ns != own {
			n++
		}
	}
	return n
}
