// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const qos = "qos.projectcalico.org/"

// Bandwidth limits are token buckets, with a peak rate if requested; the pod's annotations take precedence over a later
// bandwidth plugin's configuration.
func TestRoutedBandwidth(t *testing.T) {
	n, _ := wishingNode(t)
	job := n.saying(
		calicoOpen+
			`,{"type":"bandwidth","ingressRate":80000000,"ingressBurst":8000000,"egressRate":80000000,"egressBurst":8000000}`,
		"web-0",
		qos+"ingressBandwidth", "10M", qos+"ingressPeakrate", "20M", qos+"ingressBurst", "1M")
	n.add(job)
	if out := nettest.Run(t, nil, "tc", "qdisc", "show", "dev", n.hostEnd(job)); !strings.Contains(out, "tbf") ||
		!strings.Contains(out, "rate 10Mbit") || !strings.Contains(out, "peakrate 20Mbit") {
		t.Errorf("ingress: %s", out)
	}
	if out := nettest.Run(t, job.Netns, "tc", "qdisc", "show", "dev", "eth0"); !strings.Contains(out, "rate 80Mbit") {
		t.Errorf("egress: %s", out)
	}
	nettest.Run(t, nil, "ping", "-c1", "-W20", "-s", "1472", "10.8.0.9")
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

// Limits of packets and connections, and marks, are elements.
func TestRoutedLimits(t *testing.T) {
	n, _ := wishingNode(t)
	job := n.saying(calicoOpen, "web-0", qos+"ingressPacketRate", "1", qos+"ingressPacketBurst", "2", qos+"dscp", "EF")
	n.add(job)
	few := n.saying(calicoOpen, "web-2", qos+"egressMaxConnections", "2", "cni.projectcalico.org/ipAddrs", `["10.8.0.11"]`)
	n.add(few)
	free := n.saying(calicoOpen, "web-1", "cni.projectcalico.org/ipAddrs", `["10.8.0.10"]`)
	n.add(free)
	received := func(to string) (got int) {
		out, _ := nettest.Try(nil, "ping", "-c20", "-i0.01", "-W1", to)
		if _, rest, ok := strings.Cut(out, " transmitted, "); ok {
			_, _ = fmt.Sscan(rest, &got)
		}
		return got
	}
	if got := received("10.8.0.9"); got < 1 || got >= 20 {
		t.Errorf("%d of 20 packets came through a limit of 1 a second", got)
	}
	if got := received("10.8.0.10"); got != 20 {
		t.Errorf("%d of 20 packets came to a pod without a limit", got)
	}
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	if got := n.connects(few.Netns, 4); got != 2 {
		t.Errorf("%d connections of 4 are there at once, want 2", got)
	}
	if got := n.connects(free.Netns, 4); got != 4 {
		t.Errorf("%d connections of 4 of a pod without a limit", got)
	}
	marks := func(of *attach.Attacher) bool {
		all := of.DSCPMarks()
		return len(all) == 1 && all[0].DSCP == 46 && strings.HasPrefix(all[0].Link, "cali")
	}
	again := attach.New(n.cfg)
	if report, err := again.Recover(t.Context()); err != nil || report.Kept != 3 || !marks(n.Attacher) || !marks(again) {
		t.Errorf("%v, %v: marked %v, after a restart %v", report, err, n.DSCPMarks(), again.DSCPMarks())
	}
	for _, job := range []attach.Job{job, few, free} {
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	if got := n.DSCPMarks(); len(got) > 0 {
		t.Errorf("marked when all are gone: %v", got)
	}
	n.clean("DEL")
}

// connects is how many connections a pod has to the node at once. One that is over a limit is refused at once; nothing
// else may keep one from being made, least of all a patience that ends while the connection is there already, and
// counts.
func (n *node) connects(pod *netns.NS, tries int) (made int) {
	n.t.Helper()
	l, err := net.Listen("tcp4", "192.0.2.7:0")
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	err = pod.Do(func() error {
		for range tries {
			c, err := (&net.Dialer{Timeout: time.Minute}).DialContext(n.t.Context(), "tcp4", l.Addr().String())
			switch {
			case err == nil:
				made++
				defer func() { _ = c.Close() }()
			case !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ECONNRESET):
				return err
			}
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return made
}

// serve listens in a pod and takes connections until the end.
func serve(t *testing.T, pod *netns.NS, network, addr string) (stop func()) {
	t.Helper()
	var l net.Listener
	err := pod.Do(func() (err error) { l, err = net.Listen(network, addr); return err })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return func() { _ = l.Close(); <-done }
}

func dial(addr string) error {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err
}

// A TCP connection over a limit is refused with a reset, as Calico does it: in each direction, from other pods and from
// the node.
func TestRoutedConnectionsRefused(t *testing.T) {
	if _, err := exec.LookPath("conntrack"); err != nil {
		nettest.SkipMissing(t, "no conntrack program")
	}
	n, _ := wishingNode(t)
	out := n.saying(calicoOpen, "out", qos+"egressMaxConnections", "1", "cni.projectcalico.org/ipAddrs",
		`["10.8.0.11","fd00:8::11"]`)
	in := n.saying(calicoOpen, "in", qos+"ingressMaxConnections", "1", "cni.projectcalico.org/ipAddrs",
		`["10.8.0.12","fd00:8::12"]`)
	free := n.saying(calicoOpen, "free", "cni.projectcalico.org/ipAddrs", `["10.8.0.13","fd00:8::13"]`)
	for _, job := range []attach.Job{out, in, free} {
		n.add(job)
	}
	node := func(f func() error) error { return f() }
	for _, c := range []struct {
		name string
		from func(func() error) error
		ns   *netns.NS
		to   string
	}{
		{"out of a pod", out.Netns.Do, free.Netns, "10.8.0.13:80"},
		{"out of a pod, IPv6", out.Netns.Do, free.Netns, "[fd00:8::13]:80"},
		{"into a pod", free.Netns.Do, in.Netns, "10.8.0.12:80"},
		{"into a pod, IPv6", free.Netns.Do, in.Netns, "[fd00:8::12]:80"},
		{"from the node into a pod", node, in.Netns, "10.8.0.12:80"},
	} {
		stop := serve(t, c.ns, "tcp", c.to)
		var first net.Conn
		var second error
		err := c.from(func() (err error) {
			d := net.Dialer{Timeout: 5 * time.Second}
			for range 100 { // the kernel notices after a moment that the connection of the case before has gone
				if first, err = d.DialContext(t.Context(), "tcp", c.to); !errors.Is(err, unix.ECONNREFUSED) {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil {
				return err
			}
			_, second = d.DialContext(t.Context(), "tcp", c.to)
			return nil
		})
		if err != nil {
			t.Errorf("%s: the first one: %v", c.name, err)
			stop()
			continue
		}
		if !errors.Is(second, unix.ECONNREFUSED) && !errors.Is(second, unix.ECONNRESET) {
			t.Errorf("%s: the second one: %v", c.name, second)
		}
		_ = first.Close()
		stop()
		nettest.Run(t, nil, "conntrack", "-F")
	}
	for _, job := range []attach.Job{out, in, free} {
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	n.clean("DEL")
}
