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

// A daemon that is killed and started again goes on with its leases; what happened meanwhile it finds out.
func TestDaemonKilled(t *testing.T) {
	n := newNode(t)
	bin := filepath.Join(nettest.Programs(t), "cni")
	daemon := n.daemon("weft")
	conf := n.conf("1.0.0", "bridge", bridged)
	stays, dies, leaves := n.pod(false), n.pod(false), n.pod(false)
	result := n.must(bin, "bridge", "ADD", conf, "c1", stays)
	n.must(bin, "bridge", "ADD", conf, "c2", dies)
	n.must(bin, "bridge", "ADD", conf, "c3", leaves)
	daemon.kill()
	if err := netns.Remove(dies.Path()); err != nil {
		t.Fatal(err)
	}
	_ = dies.Close()
	n.must(bin, "bridge", "DEL", conf, "c3", leaves) // nobody is there to release its lease
	before := strings.Count(n.log.String(), "DHCPACK")
	n.daemon("weft")
	n.until("a renewal", func() bool { return strings.Count(n.log.String(), "DHCPACK") > before })
	n.until("release of what is gone", func() bool { return len(strings.Fields(n.given())) == 1 })
	n.must(bin, "bridge", "CHECK", withPrev(conf, result), "c1", stays)
	n.must(bin, "bridge", "DEL", withPrev(conf, result), "c1", stays)
	n.returned("DEL")
	if left, _ := filepath.Glob(n.path("state/*.json")); len(left) > 0 {
		t.Errorf("leases left: %v", left)
	}
}

// A daemon that is killed at any moment of an ADD leaves nothing that the DEL after its restart does not take.
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
		if aim.Told(err != nil); err != nil {
			hit++
		}
		daemon = n.daemon("weft")
		n.must(bin, "dhcp", "DEL", conf, id, ns)
		n.returned(fmt.Sprintf("kill %d", i))
		daemon.end(15)
	}
	t.Logf("%d of %d kills hit a live call", hit, kills)
	if hit < kills/4 {
		t.Errorf("only %d of %d kills hit a live call", hit, kills)
	}
	if left, _ := filepath.Glob(n.path("state/*.json*")); len(left) > 0 {
		t.Errorf("leases left: %v", left)
	}
}

// A plugin that is killed while it waits for a lease: its daemon gives up, and what was granted is given back.
func TestCallerGone(t *testing.T) {
	n := newNode(t)
	n.daemon("weft")
	ns := n.pod(false) // without an interface on the wire, so that nobody answers
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
	n.until("the daemon gives up", func() bool {
		left, _ := filepath.Glob(n.path("state/*.json*"))
		return len(left) == 0
	})
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("it took %s", d)
	}
}
