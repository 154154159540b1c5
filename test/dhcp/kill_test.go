// SPDX-License-Identifier: Apache-2.0

package dhcp_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// A daemon that is killed and restarted continues with its leases, and detects what changed meanwhile.
func TestDaemonKilled(t *testing.T) {
	n := newNode(t)
	bin := filepath.Join(nettest.Programs(t), "cni")
	daemon := n.daemon("weft")
	conf := n.conf("1.0.0", "bridge", bridged)
	stays, killed, leaves := n.pod(false), n.pod(false), n.pod(false)
	result := n.mustCall(bin, "bridge", "ADD", conf, "c1", stays)
	n.mustCall(bin, "bridge", "ADD", conf, "c2", killed)
	n.mustCall(bin, "bridge", "ADD", conf, "c3", leaves)
	daemon.kill()
	if err := netns.Remove(killed.Path()); err != nil {
		t.Fatal(err)
	}
	_ = killed.Close()
	n.mustCall(bin, "bridge", "DEL", conf, "c3", leaves) // no daemon is running that could release its lease
	before := strings.Count(n.log.String(), "DHCPACK")
	n.daemon("weft")
	n.until("a renewal", func() bool { return strings.Count(n.log.String(), "DHCPACK") > before })
	n.until("release of the deleted pod's lease", func() bool { return len(strings.Fields(n.leased())) == 1 })
	n.mustCall(bin, "bridge", "CHECK", withPrev(conf, result), "c1", stays)
	n.mustCall(bin, "bridge", "DEL", withPrev(conf, result), "c1", stays)
	n.expectNoLeases("DEL")
	if left, _ := filepath.Glob(n.path("state/*.json")); len(left) > 0 {
		t.Errorf("leases left: %v", left)
	}
}

// After a daemon is killed at any moment of an ADD, DEL after its restart removes everything.
func TestDaemonKilledAtAnyMoment(t *testing.T) {
	n := newNode(t)
	bin := filepath.Join(nettest.Programs(t), "cni")
	conf := n.conf("1.0.0", "dhcp", "")
	const kills = 20
	hit, aim := 0, nettest.NewAim(40*time.Millisecond)
	for i := range kills {
		daemon := n.daemon("weft")
		ns := n.pod(true)
		id := fmt.Sprintf("k%d", i)
		done := make(chan error, 1)
		go func() {
			_, err := n.call(bin, "dhcp", "ADD", conf, id, ns)
			done <- err
		}()
		time.Sleep(aim.Moment())
		daemon.kill()
		err := <-done
		if aim.Record(err != nil); err != nil {
			hit++
		}
		daemon = n.daemon("weft")
		n.mustCall(bin, "dhcp", "DEL", conf, id, ns)
		n.expectNoLeases(fmt.Sprintf("kill %d", i))
		daemon.stop(15)
	}
	t.Logf("%d of %d kills hit a live call", hit, kills)
	if hit < kills/4 {
		t.Errorf("only %d of %d kills hit a live call", hit, kills)
	}
	if left, _ := filepath.Glob(n.path("state/*.json*")); len(left) > 0 {
		t.Errorf("leases left: %v", left)
	}
}

// If a plugin is killed while it waits for a lease, its daemon stops the exchange and releases the lease.
func TestPluginKilled(t *testing.T) {
	n := newNode(t)
	n.daemon("weft", "-resendtimeout", "2m") // longer than the limit below
	ns := n.pod(false)                       // not connected, so that no server responds
	nettest.Run(t, ns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
	nettest.Run(t, ns, "ip", "link", "set", "other", "up")
	bin := filepath.Join(nettest.Programs(t), "cni")
	begin := time.Now()
	out, err := nettest.Try(n.ns, "timeout", "-s", "KILL", "0.5", "env", "CNI_COMMAND=ADD", "CNI_CONTAINERID=c1",
		"CNI_IFNAME=eth0",
		"CNI_PATH="+bin, "CNI_NETNS="+ns.Path(), "sh", "-c",
		"echo '"+n.conf("1.0.0", "dhcp", "")+"' | exec "+filepath.Join(bin, "dhcp"))
	if err == nil {
		t.Fatalf("ADD: %s", out)
	}
	n.until("the daemon stops the exchange", func() bool {
		left, _ := filepath.Glob(n.path("state/*.json*"))
		return len(left) == 0
	})
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("it took %s", d)
	}
}
