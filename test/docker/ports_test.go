// SPDX-License-Identifier: Apache-2.0

package docker_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// serve starts a container that answers HTTP on port 80 with its name.
func (h *host) serve(name string, args ...string) {
	h.t.Helper()
	h.docker(h.serveArgs(name, args...)...)
}

func (h *host) serveArgs(name string, args ...string) []string {
	return append(append([]string{"run", "-d", "--name", name}, args...), image, "/bin/sh", "-c",
		"echo "+name+" >/index.html; exec httpd -f -p 80 -h /")
}

// echo echoes datagrams to port 53 of a container, as a process in it would, until the test ends.
func (h *host) echo(container string) {
	h.t.Helper()
	ns, err := netns.Open("/proc/" + h.docker("inspect", "-f", "{{.State.Pid}}", container) + "/ns/net")
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	var c net.PacketConn
	if err := ns.Do(func() (err error) { c, err = net.ListenPacket("udp4", ":53"); return err }); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 1024)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
}

// dial sends a text to an address from a node, and returns the answer.
func (h *host) dial(network, addr, text string) (out string, err error) {
	failed := h.ns.Do(func() error {
		c, err := net.DialTimeout(network, addr, time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			out += string(b[:n])
			if err != nil || network == "udp" {
				return nil
			}
		}
	})
	return out, failed
}

// answers waits until a container answers at an address that a node dials.
func (h *host) answers(name, addr string) {
	h.t.Helper()
	h.until(name+" answers at "+addr+" from "+h.name, func() error {
		out, err := h.dial("tcp", addr, "GET / HTTP/1.0\r\n\r\n")
		if err == nil && !strings.Contains(out, "\n"+name+"\n") {
			err = fmt.Errorf("answer %q", out)
		}
		return err
	})
}

// published returns the published ports of a container's address.
func (h *host) published(addr string) (out []model.PublishedPort) {
	h.t.Helper()
	all, err := h.attachments()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, a := range all {
		for _, p := range a.Addresses {
			if p.Addr().String() == addr {
				return a.Ports
			}
		}
	}
	return nil
}

// TestPorts: docker run -p leads ports of the node to the container, from other nodes, the node itself and containers, of
// both families. A port that something else has is refused, one that is left open is chosen, and removed containers free
// theirs.
func TestPorts(t *testing.T) {
	c := newCluster(t, 2, withIPv6)
	one, two := c.nodes[0], c.nodes[1]
	for _, h := range c.nodes {
		h.network("pods", "--ipv6")
		h.run("client", "--network", "pods")
	}
	one.network("four")
	one.network("more")
	one.serve("web", "--network", "pods", "-p", "8080:80", "-p", "127.0.0.1:8081:80", "-p", "5353:53/udp", "-p", "9000:9000/sctp")
	for _, addr := range []string{"192.168.77.1:8080", "[fd18::1]:8080"} {
		two.answers("web", addr)
		one.answers("web", addr)
	}
	for _, addr := range []string{"127.0.0.1:8080", "127.0.0.1:8081"} {
		one.answers("web", addr)
	}
	if out, err := two.dial("tcp", "192.168.77.1:8081", "GET / HTTP/1.0\r\n\r\n"); err == nil {
		t.Errorf("a port of 127.0.0.1 answers to another node: %q", out)
	}
	for _, from := range []struct {
		*host
		container string
	}{{one, "client"}, {two, "client"}, {one, "web"}} {
		from.until(from.container+" on "+from.name+" reaches the port", func() error {
			out, err := from.try("exec", from.container, "/bin/sh", "-c",
				`printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 2 192.168.77.1 8080`)
			if err == nil && !strings.Contains(out, "web") {
				err = fmt.Errorf("answer %q", out)
			}
			return err
		})
	}
	one.echo("web")
	two.until("the UDP port answers", func() error {
		out, err := two.dial("udp", "192.168.77.1:5353", "hello")
		if err == nil && out != "hello" {
			err = fmt.Errorf("answer %q", out)
		}
		return err
	})
	if rules := nettest.Run(t, one.ns, "nft", "list", "map", "inet", "weft_hostports", "ports4"); !strings.Contains(rules, "sctp . 9000") {
		t.Errorf("the SCTP port is not mapped: %s", rules)
	}
	if out := one.docker("port", "web"); out != "" {
		t.Errorf("docker port shows %s: correct the documentation", out)
	}

	refused := func(flag string, texts ...string) {
		t.Helper()
		one.refused([]string{"run", "--rm", "--network", "four", "-p", flag, image, "/bin/true"}, texts...)
	}
	refused("8080:80", "hostPort 8080/tcp is taken by attachment", "container web", "choose another")
	refused("[::]:8090:80", "port [::]:8090:80/tcp: the container has no IPv6 address")
	refused("192.0.2.9:8090:80", "hostIP 192.0.2.9: the node has no such address")
	var l net.Listener
	if err := one.ns.Do(func() (err error) { l, err = net.Listen("tcp", ":8090"); return err }); err != nil {
		t.Fatal(err)
	}
	refused("8090:80", "hostPort 8090/tcp is taken by a process of the node")
	_ = l.Close()

	one.serve("second", "--network", "four", "-p", "8080-8085:80")
	two.answers("second", "192.168.77.1:8082") // 8081 is taken at 127.0.0.1
	one.serve("any", "--network", "four", "--expose", "80", "-P")
	ports := one.published(one.addr("any", "four"))
	if len(ports) != 1 || ports[0].HostPort < 49152 {
		t.Fatalf("for -P the ports %v were chosen", ports)
	}
	two.answers("any", fmt.Sprintf("192.168.77.1:%d", ports[0].HostPort))

	one.docker("rm", "-f", "web", "second")
	one.serve("third", "--network", "four", "-p", "8080:80")
	two.answers("third", "192.168.77.1:8080")
	// The ports follow the container's default gateway.
	one.docker("network", "connect", "more", "third")
	two.answers("third", "192.168.77.1:8080")
	one.docker("network", "disconnect", "four", "third")
	two.answers("third", "192.168.77.1:8080")
	one.docker("restart", "-t", "0", "third")
	two.answers("third", "192.168.77.1:8080")
	one.docker("rm", "-f", "third", "any")
	for _, h := range c.nodes {
		h.docker("rm", "-f", "client")
		h.clean()
	}
}

// TestPortsKilled: published ports answer while the driver, the agent or dockerd is killed and started again; whichever
// step of publishing or revoking them the driver is killed at, the container starts, and removing it frees them.
func TestPortsKilled(t *testing.T) {
	c := newCluster(t, 1)
	h := c.nodes[0]
	h.dockerd.end(syscall.SIGTERM)
	h.startDockerd("--live-restore")
	h.network("pods")
	h.serve("web", "--network", "pods", "-p", "8080:80")
	const at = "192.168.77.1:8080"
	h.answers("web", at)
	for _, p := range []struct {
		of    **process
		start func()
	}{
		{&h.driver, h.startDriver}, {&h.agent, h.startAgent}, {&h.dockerd, func() { h.startDockerd("--live-restore") }},
	} {
		(*p.of).end(syscall.SIGKILL)
		h.answers("web", at)
		p.start()
		h.answers("web", at)
		h.docker("restart", "-t", "0", "web")
		h.answers("web", at)
	}
	h.docker("rm", "-f", "web")
	h.clean()

	nettest.StepProgram(t, "weft-docker", h.path("weft-docker"))
	h.driver.end(syscall.SIGKILL)
	h.steps = h.path("steps")
	h.startDriver()
	// during runs a docker command and starts the driver again if it is killed meanwhile.
	during := func(args ...string) (killed bool) {
		t.Helper()
		done := make(chan error, 1)
		go func() {
			_, err := h.try(args...)
			done <- err
		}()
		for {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				return killed
			case err := <-h.driver.done:
				h.driver.done <- err
				killed = true
				h.driver.end(syscall.SIGKILL)
				h.startDriver()
			}
		}
	}
	for step, last := 0, false; !last; step++ {
		if err := os.WriteFile(h.steps, fmt.Append(nil, step), 0o600); err != nil {
			t.Fatal(err)
		}
		begun := during(h.serveArgs("web", "--network", "pods", "-p", "8080:80")...)
		h.answers("web", at)
		removed := during("rm", "-f", "web")
		last = !begun && !removed
		h.clean()
		t.Logf("step %d: killed while it starts %t, while it is removed %t", step, begun, removed)
		if last && step != 4 {
			t.Errorf("the driver has %d steps, not the 4 of publishing and revoking", step)
		}
	}
	if err := os.Remove(h.steps); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}
