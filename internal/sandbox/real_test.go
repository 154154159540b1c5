// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// realWorld returns a world with weft's own plugins.
func realWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	if err := os.RemoveAll(w.path("bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.path("net.d/10-stubs.conflist")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.path("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	nettest.Program(t, "weft-plugin", w.path("bin/bridge"))
	for _, name := range []string{"loopback", "host-local", "ptp"} {
		if err := os.Symlink("bridge", w.path("bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// host returns the state of the node's network, without parts that change by themselves.
func host(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, argv := range [][]string{
		{"ip", "-br", "link"}, {"ip", "-br", "addr"}, {"ip", "route"}, {"ip", "-6", "route"}, {"ip", "rule"},
	} {
		b.WriteString(nettest.Run(t, nil, argv...))
	}
	return b.String()
}

// hostAs returns the node's state as soon as it is as before: the kernel deletes links after their namespace.
func hostAs(t *testing.T, before string) string {
	t.Helper()
	after := host(t)
	for end := time.Now().Add(time.Minute); after != before && time.Now().Before(end); after = host(t) {
		time.Sleep(20 * time.Millisecond)
	}
	return after
}

func (w *world) oldConf(t *testing.T) {
	t.Helper()
	w.write("net.d/10-mynet.conf", fmt.Sprintf(`{
 "cniVersion": "0.2.0", "name": "mynet", "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
 "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.22.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}}`, w.path("ipam")))
	w.write("net.d/99-loopback.conf", `{"cniVersion": "0.2.0", "name": "lo", "type": "loopback"}`)
}

// TestOldConfigurations uses two old configurations that are still common: single plugins of version 0.2.0.
func TestOldConfigurations(t *testing.T) {
	w := realWorld(t)
	w.oldConf(t)
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	c := w.start(-1)
	before := host(t)
	a := w.apply(c, w.manifest("a", sleeper), "a", "Running")
	b := w.apply(c, w.manifest("b", sleeper), "b", "Running")
	if len(a.IPs) != 1 || !strings.HasPrefix(a.IPs[0], "10.22.0.") || a.IPs[0] == b.IPs[0] {
		t.Fatalf("addresses %q and %q", a.IPs, b.IPs)
	}
	ns, err := netns.Open(a.Netns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	nettest.Run(t, ns, "ping", "-c", "1", "-W", "2", b.IPs[0])
	nettest.Run(t, ns, "ping", "-c", "1", "-W", "2", "127.0.0.1")
	w.stop(c, "a")
	w.stop(c, "b")
	left, _ := filepath.Glob(w.path("ipam/mynet/10.*"))
	if len(left) > 0 {
		t.Errorf("addresses are left: %q", left)
	}
	w.quit()
	w.clean("after stop")
	nettest.Run(t, nil, "ip", "link", "del",
		"cni0") // the bridge plugin does not delete its bridge, like the reference plugin
	if after := hostAs(t, before); after != before {
		t.Errorf("the node was\n%s\nand is\n%s", before, after)
	}
}

// TestKilledWithRealPlugins: after kills at random times with real plugins, the node's network is as before.
func TestKilledWithRealPlugins(t *testing.T) {
	nettest.EndToEnd(t)
	w := realWorld(t)
	w.oldConf(t)
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	before := host(t)
	hits := 0
	const n = 20
	for i := range n {
		c := w.start(-1)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		go func() {
			if i%2 == 0 {
				_, _ = c.Apply(ctx, w.manifest("web", sleeper), "test")
			} else {
				_ = c.Stop(ctx, "default", "web", new(time.Duration), false)
			}
		}()
		time.Sleep(time.Duration(3+2*i) * time.Millisecond)
		w.kill()
		cancel()
		if s := w.lastStep(); s != "" && s != "container: started" && s != "stop: checkpoint removed" {
			hits++
		}
		_ = os.Remove(w.path("last-step"))
	}
	w.empty(fmt.Sprintf("after %d kills", n))
	_, _ = nettest.Try(nil, "ip", "link", "del", "cni0")
	if after := hostAs(t, before); after != before {
		t.Errorf("the node was\n%s\nand is\n%s", before, after)
	}
	if left, _ := filepath.Glob(w.path("ipam/mynet/10.*")); len(left) > 0 {
		t.Errorf("addresses are left: %q", left)
	}
	t.Logf("%d kills, %d of them hit a live call", n, hits)
}

// TestHostPort: with a portmap plugin, weft's or the reference's, a hostPort reaches the pod.
func TestHostPort(t *testing.T) { hostPortBy(t, "bridge") }

func TestHostPortByForeignPlugin(t *testing.T) {
	peer := os.Getenv("WEFT_PEER_BIN_DIR")
	if peer == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set to a directory with the reference portmap")
	}
	hostPortBy(t, filepath.Join(peer, "portmap"))
}

func hostPortBy(t *testing.T, program string) {
	t.Helper()
	w := realWorld(t)
	if err := os.Symlink(program, w.path("bin/portmap")); err != nil {
		t.Fatal(err)
	}
	w.write("net.d/10-b.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"b","plugins":[
	 {"type":"bridge","bridge":"cni0","isGateway":true,"ipam":{"type":"host-local","dataDir":%q,"subnet":"10.22.0.0/16","routes":[{"dst":"0.0.0.0/0"}]}},
	 {"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`, w.path("ipam")))
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	client := w.outside(t)
	c := w.start(-1)
	w.apply(c, w.manifest("web", `  containers:
  - name: main
    image: x
    command: [`+strings.Join(echoServer(t), ", ")+`]
    ports: [{containerPort: 80, hostPort: 8080}]
    env: [{name: `+worldVar+`, value: `+w.dir+`}]`), "web", "Running")
	var got string
	w.eventually("port 8080 of the node answers", func() bool {
		_ = client.Do(func() error {
			conn, err := net.DialTimeout("tcp", "192.0.2.1:8080", time.Second)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			buf := make([]byte, 64)
			n, err := conn.Read(buf)
			got = string(buf[:n])
			return err
		})
		return strings.Contains(got, "hello from web")
	})
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
	nettest.Run(t, nil, "ip", "link", "del", "cni0")
}

// outside returns a namespace with a link to the node, which has 192.0.2.1 there.
func (w *world) outside(t *testing.T) *netns.NS {
	t.Helper()
	ns := nettest.NS(t, "outside")
	nettest.Run(t, nil, "ip", "link", "add", "wire", "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "wire") })
	nettest.Run(t, nil, "ip", "addr", "add", "192.0.2.1/24", "dev", "wire")
	nettest.Run(t, nil, "ip", "link", "set", "wire", "up")
	nettest.Run(t, ns, "ip", "addr", "add", "192.0.2.2/24", "dev", "eth0")
	nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
	return ns
}

// echoServer returns a command of this test binary that greets each client at port 80.
func echoServer(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, "sandbox", "test-greet"}
}

// testHello serves until it fails.
func testHello() {
	l, err := net.Listen("tcp", ":80")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	name, _ := os.Hostname()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprintf(conn, "hello from %s\n", name)
		_ = conn.Close()
	}
}
