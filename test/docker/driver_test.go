// SPDX-License-Identifier: Apache-2.0

package docker_test

import (
	"testing"
)

// TestContainers: containers of one node reach each other, those of the other node and the node; removing them leaves
// nothing.
func TestContainers(t *testing.T) {
	c := newCluster(t, 2)
	for _, h := range c.nodes {
		h.docker("network", "create", "-d", "weft", "--ipam-driver", "weft", "pods")
		for _, name := range []string{"c1", "c2"} {
			h.docker("run", "-d", "--name", name, "--network", "pods", image, "/bin/sleep", "100000")
		}
	}
	one, two := c.nodes[0], c.nodes[1]
	one.reaches("c1", one.addr("c2", "pods"))
	one.reaches("c1", "192.168.77.1")
	one.reaches("c1", two.addr("c2", "pods"))
	two.reaches("c1", one.addr("c2", "pods"))
	for _, h := range c.nodes {
		h.docker("rm", "-f", "c1", "c2")
		h.clean()
		h.docker("network", "rm", "pods")
	}
}
