// SPDX-License-Identifier: Apache-2.0

package docker_test

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// The environment of a container that runs this program to send packets: the server's address, and the container's name.
const (
	serverEnv = "WEFT_TEST_SERVER"
	nameEnv   = "WEFT_TEST_NAME"
)

// sendFirst sends datagrams to a server until it has answered one, and another one that reports so.
func sendFirst(server, name string) int {
	for _, message := range []string{"first " + name, "answered " + name} {
		for !answered(server, message) {
			time.Sleep(time.Millisecond)
		}
	}
	return 0
}

func answered(server, message string) bool {
	c, err := net.Dial("udp4", server)
	if err != nil { // the interface is not there yet
		return false
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Millisecond))
	if _, err := c.Write([]byte(message)); err != nil {
		return false
	}
	b := make([]byte, len(message)+1)
	n, err := c.Read(b)
	return err == nil && string(b[:n]) == message
}

// echoAnswered echoes datagrams at an address of the node, and returns a channel with the time at which each container
// first reported that it had an answer.
func (h *host) echoAnswered(addr string) <-chan time.Time {
	h.t.Helper()
	var c net.PacketConn
	if err := h.ns.Do(func() (err error) { c, err = net.ListenPacket("udp4", addr); return err }); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	times := make(chan time.Time, 1)
	go func() {
		b := make([]byte, 1024)
		known := map[string]bool{}
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			at := time.Now()
			_, _ = c.WriteTo(b[:n], from)
			if name, is := strings.CutPrefix(string(b[:n]), "answered "); is && !known[name] {
				known[name] = true
				times <- at
			}
		}
	}()
	return times
}

// BenchmarkStart measures the time from `docker start` until the node has answered a packet of the container, in turns on
// a network of the driver and on one of Docker's own bridge driver:
//
//	go test ./test/docker -run xxx -bench Start -benchtime 20x
func BenchmarkStart(b *testing.B) {
	c := newCluster(b, 1)
	h := c.nodes[0]
	const server = "192.168.77.1:7000"
	networks := []string{"weft", "bridge"}
	h.network("weft-net")
	h.docker("network", "create", "-d", "bridge", "bridge-net")
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	times := h.echoAnswered(server)
	started := 0
	b.Run("interleaved", func(b *testing.B) {
		took := map[string][]time.Duration{}
		for range b.N {
			for _, network := range networks {
				started++
				name := fmt.Sprintf("c%d", started)
				h.docker("create", "--name", name, "--network", network+"-net", "-v", program+":/test:ro",
					"-e", serverEnv+"="+server, "-e", nameEnv+"="+name, image, "/test")
				begin := time.Now()
				h.docker("start", name)
				select {
				case at := <-times:
					took[network] = append(took[network], at.Sub(begin))
				case <-time.After(patience):
					b.Fatalf("%s on network %s has no answer:\n%s", name, network, h.docker("logs", name))
				}
				h.docker("rm", "-f", name)
			}
			slices.Reverse(networks)
		}
		for network, all := range took {
			slices.Sort(all)
			b.Logf("%s: %v", network, all)
			b.ReportMetric(float64(median(all).Microseconds())/1000, network+"-ms")
			b.ReportMetric(float64(all[(len(all)*9)/10].Microseconds())/1000, network+"-p90-ms")
		}
		b.ReportMetric(float64(median(took["weft"]))/float64(median(took["bridge"])), "weft/bridge")
		b.ReportMetric(0, "ns/op") // without meaning here
	})
	h.clean()
	if out, err := nettest.Try(h.ns, "uptime"); err == nil {
		b.Log(out)
	}
}

// median returns the median of sorted times.
func median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }
