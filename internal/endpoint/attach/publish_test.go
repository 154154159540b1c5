// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// container attaches a container of an engine, which has taken its interface over.
func (n *node) container() (attach.Job, model.AttachmentKey) {
	n.t.Helper()
	id, ns := n.pod()
	job := n.job(n.list(bridge), id, ns)
	job.Request.Args = [][2]string{{"IgnoreUnknown", "1"}, {model.ContainerArg, "docker"}}
	n.add(job)
	key := job.Request.Key()
	if _, err := n.HandOver(n.t.Context(), key, attach.HandOver{Link: "wd" + id}, ns); err != nil {
		n.t.Fatal(err)
	}
	nettest.Run(n.t, nil, "ip", "link", "set", "wd"+id, "netns", ns.Path())
	if err := n.SetLabels(n.t.Context(), key, nil); err != nil {
		n.t.Fatal(err)
	}
	return job, key
}

func tcp(host, end, to uint16) model.PublishedPort {
	return model.PublishedPort{Protocol: "tcp", HostPort: host, HostPortEnd: end, ContainerPort: to}
}

// TestPublish: an engine publishes ports of the node, changes and revokes them; what a range or no port leaves open is
// chosen once. A port that an attachment or a process has is an error that names it.
func TestPublish(t *testing.T) {
	n := newNode(t)
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	one, key := n.container()
	two, other := n.container()
	publish := func(key model.AttachmentKey, ports ...model.PublishedPort) []model.PublishedPort {
		t.Helper()
		out, err := n.Publish(t.Context(), key, ports)
		if err != nil {
			t.Fatal(err)
		}
		if report, err := n.CheckAll(t.Context()); err != nil || len(report.Problems) > 0 {
			t.Errorf("CHECK: %+v, %v", report, err)
		}
		return out
	}
	localnet := func() string { return nettest.Run(t, nil, "sysctl", "-n", "net.ipv4.conf.abr0.route_localnet") }

	want := []model.PublishedPort{tcp(8080, 0, 80), {Protocol: "udp", HostPort: 8080, ContainerPort: 53, HostIP: netip.MustParseAddr("0.0.0.0")}}
	for range 2 {
		if got := publish(key, want...); !reflect.DeepEqual(got, want) {
			t.Errorf("published %v", got)
		}
	}
	if got := strings.Count(nettest.Run(t, nil, "nft", "list", "table", "inet", "weft_hostports"), "8080 comment"); got != 2 {
		t.Errorf("%d elements for port 8080, want 2", got)
	}
	if localnet() != "1\n" {
		t.Error("127.0.0.1 of the node does not lead to the container")
	}
	_, err := n.Publish(t.Context(), other, []model.PublishedPort{tcp(8080, 0, 80)})
	wantCode(t, "port of another", err, model.CodeInUse, "hostPort 8080/tcp is taken by attachment "+key.String())
	if got := publish(other, tcp(8080, 8082, 80)); got[0] != tcp(8081, 0, 80) {
		t.Errorf("of the range 8080-8082, of which one is taken, %v was chosen", got)
	}
	l, err := net.Listen("tcp", "127.0.0.1:8082")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, err = n.Publish(t.Context(), other, []model.PublishedPort{tcp(8082, 0, 80)})
	wantCode(t, "port of a process", err, model.CodeInUse, "hostPort 8082/tcp is taken by a process")
	_, err = n.Publish(t.Context(), other, []model.PublishedPort{tcp(8080, 8082, 80), tcp(8080, 8082, 81)})
	wantCode(t, "range", err, model.CodeInUse, "hostPort 8080-8082/tcp: none is free")
	_, err = n.Publish(t.Context(), other, []model.PublishedPort{{Protocol: "tcp", HostPort: 9000, ContainerPort: 80,
		HostIP: netip.MustParseAddr("192.0.2.77")}})
	wantCode(t, "address", err, model.CodeInvalidConf, "hostIP 192.0.2.77: the node has no such address")
	first := publish(other, tcp(0, 0, 80), tcp(0, 0, 80))
	if first[0].HostPort < 49152 || first[0].HostPort == first[1].HostPort {
		t.Errorf("ports %v were chosen", first)
	}
	if again := publish(other, tcp(0, 0, 80), tcp(0, 0, 80)); !reflect.DeepEqual(again, first) {
		t.Errorf("the same request again has chosen %v, not %v", again, first)
	}
	publish(key)
	publish(key)
	if out := nettest.Run(t, nil, "nft", "list", "table", "inet", "weft_hostports"); strings.Count(out, "tcp . ") != 2 ||
		strings.Contains(out, "8080") {
		t.Errorf("after revocation, other than the ports of the other container are mapped:\n%s", out)
	}
	publish(key, tcp(8080, 0, 80))
	publish(key)
	publish(other)
	for _, job := range []attach.Job{one, two} {
		if err := n.Del(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	n.clean("DEL")
}

// TestPublishConnections: when one of a container's ports is revoked, connections to it end, and those to its other ports
// and to its own address continue.
func TestPublishConnections(t *testing.T) {
	n := newNode(t)
	job, key := n.container()
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	// Else the kernel makes new entries for connections whose entries were deleted.
	const loose = "net.netfilter.nf_conntrack_tcp_loose="
	nettest.Run(t, nil, "sysctl", "-w", loose+"0")
	t.Cleanup(func() { nettest.Run(t, nil, "sysctl", "-w", loose+"1") })
	echoTCP(t, job.Netns, 80)
	const own = "10.8.0.2" // the first address of the range, as the engine configures it
	link := "wd" + job.Request.ContainerID
	nettest.IP(t, job.Netns, "link set "+link+" up")
	nettest.IP(t, job.Netns, "addr add "+own+"/24 dev "+link)
	nettest.IP(t, job.Netns, "route add default via 10.8.0.1")
	if _, err := n.Publish(t.Context(), key, []model.PublishedPort{tcp(8080, 0, 80), tcp(8081, 0, 80), tcp(8090, 8092, 80)}); err != nil {
		t.Fatal(err)
	}
	dialed := map[string]net.Conn{}
	for _, addr := range []string{"10.8.0.1:8080", "10.8.0.1:8081", "10.8.0.1:8090", own + ":80"} {
		c, err := net.DialTimeout("tcp", addr, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		dialed[addr] = c
	}
	echoes := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	for addr, c := range dialed {
		if err := echoes(c); err != nil {
			t.Fatalf("%s: %v", addr, err)
		}
	}
	if _, err := n.Publish(t.Context(), key, []model.PublishedPort{tcp(8090, 8092, 80), tcp(8081, 0, 80)}); err != nil {
		t.Fatal(err)
	}
	for addr, c := range dialed {
		switch err := echoes(c); {
		case strings.HasSuffix(addr, ":8080") && !errors.Is(err, syscall.ECONNRESET):
			t.Errorf("the connection to the revoked port %s goes on: %v", addr, err)
		case !strings.HasSuffix(addr, ":8080") && err != nil:
			t.Errorf("the connection to %s ends with port 8080: %v", addr, err)
		}
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	n.clean("DEL")
}

// echoTCP echoes what arrives at a port of a namespace until the test ends.
func echoTCP(t *testing.T, ns *netns.NS, port int) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port)); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
}

// TestPublishKilled: a process that is killed at any step of publishing and revoking leaves a record by which the next
// request succeeds, and by which a DEL removes everything.
func TestPublishKilled(t *testing.T) {
	for _, step := range []string{"before publish", "after record of ports", "after ports", "after ports were revoked"} {
		for _, repeated := range []bool{true, false} {
			n := newNode(t)
			job, key := n.container()
			cut := errors.New("cut here")
			n.cfg.Failpoint = func(s string) error {
				if s == step {
					return cut
				}
				return nil
			}
			n.Attacher = attach.New(n.cfg)
			ports := []model.PublishedPort{tcp(8080, 0, 80)}
			_, err := n.Publish(t.Context(), key, ports)
			if err == nil {
				_, err = n.Publish(t.Context(), key, nil)
			}
			if !errors.Is(err, cut) {
				t.Fatalf("%s: %v", step, err)
			}
			n.cfg.Failpoint = nil
			n.Attacher = attach.New(n.cfg)
			if _, err := n.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, p := range [][]model.PublishedPort{ports, nil, ports} {
				if !repeated {
					break
				}
				if _, err := n.Publish(t.Context(), key, p); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				if got := mappedPorts(t, 8080); got != len(p) {
					t.Errorf("%s: %d elements, want %d", step, got, len(p))
				}
			}
			if err := n.Del(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			n.clean("killed " + step)
		}
	}
}
