// SPDX-License-Identifier: Apache-2.0

package docker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// composeFile is a project of two services on networks of the driver.
const composeFile = `version: "2.4"
services:
  web:
    image: weft-test
    command: ["/bin/sh", "-c", "echo web >/index.html; exec httpd -f -p 80 -h /"]
    labels: {app: web}
    ports: ["8080:80"]
    networks:
      back: {ipv4_address: 10.77.1.7, ipv6_address: "fd77::7", aliases: [server]}
  client:
    image: weft-test
    command: ["/bin/sleep", "100000"]
    networks: [back]
networks:
  back:
    driver: weft
    driver_opts: {pool: "green,six", mtu: "1300"}
    enable_ipv6: true
    ipam:
      driver: weft
      config: [{subnet: 10.77.0.0/20}, {subnet: "fd77::/112"}]
`

// compose runs a command of docker-compose on the project.
func (h *host) compose(args ...string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker-compose", append([]string{"--host", "unix://" + h.path("docker.sock"),
		"--project-name", "shop", "--file", h.path("compose.yaml")}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+h.path("config"), "COMPOSE_HTTP_TIMEOUT=120")
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("docker-compose %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestCompose: the services of a Compose file reach each other by name and alias and have the addresses, options and
// ports of the file, on all nodes; down leaves nothing.
func TestCompose(t *testing.T) {
	c := newCluster(t, 2, withCompose, withIPv6)
	one, two := c.nodes[0], c.nodes[1]
	if err := os.WriteFile(one.path("compose.yaml"), []byte(composeFile), 0o600); err != nil {
		t.Fatal(err)
	}
	one.compose("up", "-d")
	client := one.docker("ps", "-q", "--filter", "label=com.docker.compose.service=client")
	for _, name := range []string{"web", "server"} {
		one.until("the client resolves "+name, func() error {
			out, err := one.try("exec", client, "nslookup", name, "127.0.0.11")
			if err == nil && !strings.Contains(out, "10.77.1.7") {
				err = fmt.Errorf("answer %q", out)
			}
			return err
		})
	}
	one.until("the client reaches the service", func() error {
		out, err := one.try("exec", client, "/bin/sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 2 10.77.1.7 80`)
		if err == nil && !strings.Contains(out, "web") {
			err = fmt.Errorf("answer %q", out)
		}
		return err
	})
	two.answers("web", "192.168.77.1:8080")
	two.network("pods", "--ipv6")
	two.run("far", "--network", "pods")
	two.reaches("far", "10.77.1.7")
	two.reaches("far", "fd77::7")
	if link := one.docker("exec", client, "ip", "link", "show", "eth0"); !strings.Contains(link, "mtu 1300") {
		t.Errorf("the network's MTU is not 1300: %s", link)
	}
	one.compose("restart", "-t", "0", "web")
	two.answers("web", "192.168.77.1:8080")
	two.answers("web", "[fd18::1]:8080")
	two.reaches("far", "fd77::7")
	one.compose("down", "-t", "0")
	two.docker("rm", "-f", "far")
	for _, h := range c.nodes {
		h.clean()
	}
}
