// SPDX-License-Identifier: Apache-2.0

package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// major returns the major version of dockerd.
func (h *host) major() int {
	h.t.Helper()
	version := h.docker("version", "-f", "{{.Server.Version}}")
	n, err := strconv.Atoi(version[:strings.IndexAny(version+".", ".-+")])
	if err != nil {
		h.t.Fatalf("version %q: %v", version, err)
	}
	return n
}

// post makes a request of dockerd's API, for what Debian's client has no option.
func (h *host) post(path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", h.path("docker.sock"))
		},
	}}
	answer, err := client.Post("http://docker"+path, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode/100 == 2 {
		return nil
	}
	text, err = io.ReadAll(answer.Body)
	return fmt.Errorf("%s: %s: %s: %w", path, answer.Status, text, err)
}

// TestGateways: of a container on a network with IPv4 only and one with both families, published ports stay reachable
// while either is connected, disconnected or has the default gateway. A dockerd from version 28 on has a gateway for each
// family, so that two networks may have a part of the ports.
func TestGateways(t *testing.T) {
	c := newCluster(t, 2, withIPv6)
	h, from := c.nodes[0], c.nodes[1]
	h.network("a4", "-o", "pool=blue")
	h.network("b6", "--ipv6", "-o", "pool=green,six")
	h.network("z4", "-o", "pool=blue")
	h.docker("create", "--name", "c1", "--network", "a4", "-p", "8080:80", image, "/bin/sh", "-c",
		"echo c1 >/index.html; exec httpd -f -p 80 -h /")
	h.docker("network", "connect", "b6", "c1")
	h.docker("start", "c1")
	const four, six = "192.168.77.1:8080", "[fd18::1]:8080"
	both := func() {
		t.Helper()
		from.answers("c1", four)
		from.answers("c1", six)
	}
	silent := func(addr string) {
		t.Helper()
		h.until("nothing answers at "+addr, func() error {
			if out, err := from.dial("tcp", addr, "GET / HTTP/1.0\r\n\r\n"); err == nil {
				return fmt.Errorf("answer %q", out)
			}
			return nil
		})
	}
	newer := h.major() >= 28
	separate := func() {
		t.Helper()
		from.answers("c1", four)
		if newer {
			from.answers("c1", six)
		}
	}
	separate()
	h.docker("network", "disconnect", "a4", "c1")
	both()
	h.docker("network", "connect", "a4", "c1")
	separate()
	h.docker("network", "disconnect", "b6", "c1")
	from.answers("c1", four)
	silent(six)
	h.docker("network", "connect", "b6", "c1")
	separate()
	if newer {
		if err := h.post("/networks/z4/connect", map[string]any{
			"Container": "c1", "EndpointConfig": map[string]any{"GwPriority": 10},
		}); err != nil {
			t.Fatal(err)
		}
		addr := h.addr("c1", "z4")
		h.until("the ports are those of the network with the highest priority", func() error {
			if len(h.published(addr)) == 0 {
				return errors.New(h.docker("exec", "c1", "ip", "route"))
			}
			return nil
		})
		both()
		h.docker("network", "disconnect", "z4", "c1")
		both()
	}
	h.docker("rm", "-f", "c1")
	h.clean()
	for _, addr := range []string{four, six} {
		silent(addr)
	}
}

// TestNewerOptions: what dockerd has from version 28 on for networks and endpoints is in force, or refused with a hint.
func TestNewerOptions(t *testing.T) {
	c := newCluster(t, 1, withIPv6)
	h := c.nodes[0]
	h.network("b6", "--ipv6", "--subnet", "10.77.0.0/20", "--subnet", "fd77::/112")
	h.refused([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft", "-o",
		"com.docker.network.bridge.gateway_mode_ipv4=routed", "n"}, "option com.docker.network.bridge.gateway_mode_ipv4", "pool=NAME")
	if h.major() >= 28 {
		h.docker("create", "--name", "c1", "--network", "none", image, "/bin/sleep", "100000")
		h.docker("network", "disconnect", "none", "c1")
		h.docker("start", "c1")
		connect := func(option, value string) error {
			return h.post("/networks/b6/connect", map[string]any{"Container": "c1", "EndpointConfig": map[string]any{
				"IPAMConfig": map[string]any{"IPv4Address": "10.77.1.9"}, "MacAddress": "02:42:00:00:00:09",
				"DriverOpts": map[string]any{option: value},
			}})
		}
		err := connect("com.docker.network.endpoint.ifname", "web0")
		if err == nil || !strings.Contains(err.Error(), "ifname=web0 is not supported") {
			t.Errorf("the name of an interface: %v", err)
		}
		if err := connect("com.docker.network.endpoint.sysctls", "net.ipv4.conf.IFNAME.log_martians=1"); err != nil {
			t.Fatal(err)
		}
		link := h.docker("exec", "c1", "ip", "addr", "show", "eth0")
		for _, want := range []string{"10.77.1.9/32", "02:42:00:00:00:09", "inet6 fd77::"} {
			if !strings.Contains(link, want) {
				t.Errorf("the container has no %q:\n%s", want, link)
			}
		}
		if on := h.docker("exec", "c1", "cat", "/proc/sys/net/ipv4/conf/eth0/log_martians"); on != "1" {
			t.Errorf("the endpoint's sysctl is %q", on)
		}
		h.reaches("c1", "192.168.77.1")
		h.docker("rm", "-f", "c1")
	}
	h.clean()
}
