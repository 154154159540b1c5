// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/bench/rounds"
	"github.com/weft-net/weft/internal/nettest"
)

// figuresVariable is the number of rounds that TestFigures measures.
const figuresVariable = "WEFT_CALICO_FIGURES"

// TestFigures measures Felix and weft with the same policies of Calico's, in turns: new connections per second to a pod that
// all of them select, and the time from the API write of a policy to its first packet.
func TestFigures(t *testing.T) {
	count := number(t, figuresVariable, 0)
	if count == 0 {
		nettest.SkipMissing(t, figuresVariable+" is not set: it is the number of rounds of a measurement, which takes minutes")
	}
	all := []*contender{
		newContender(t, "Felix, iptables", map[string]string{"FELIX_IPTABLESBACKEND": "nft"}),
		newContender(t, "Felix, nft", map[string]string{"FELIX_NFTABLESMODE": "Enabled"}),
		newContender(t, "weft", map[string]string{"FELIX_NFTABLESMODE": "Enabled"}),
	}
	lines := []string{"| policies | figure | Felix, iptables | Felix, nft | weft | weft to iptables | weft to nft |", "|---|---|---|---|---|---|---|"}
	for _, policies := range []int{1, 100, 1000} {
		for range max(1, count/5) { // enough are created for a figure
			for _, i := range rand.Perm(len(all)) {
				all[i].removeAll()
				all[i].add("all", all[i].createAll(policies))
			}
		}
		for range count {
			for _, i := range rand.Perm(len(all)) {
				all[i].add("one more", all[i].createOne())
				all[i].removeOne()
				rate, err := all[i].pair.Once(path.TestConnect, 200*time.Millisecond)
				if err != nil {
					t.Fatalf("%s, %d policies: %v", all[i].name, policies, err)
				}
				all[i].add("connect", rate)
			}
		}
		for _, figure := range []string{"connect", "one more", "all"} {
			row := fmt.Sprintf("| %d | %s |", policies, figure)
			ours := all[2].values[figure]
			for _, c := range all {
				middle, low, high := rounds.Spread(c.values[figure])
				row += fmt.Sprintf(" %.4g (%.4g–%.4g) |", middle, low, high)
			}
			for _, c := range all[:2] {
				row += " " + rounds.Ratio(rounds.Spread(rounds.Quotients(ours, c.values[figure]))) + " |"
			}
			lines = append(lines, row)
		}
		for _, c := range all {
			clear(c.values)
		}
	}
	t.Logf("n = %d; connect: per second; one more, all: ms until the first packet\n%s", count, strings.Join(lines, "\n"))
}

// contender enforces policies in a cluster of its own, on a node with a server and a client.
type contender struct {
	*arena
	name           string
	client, server host
	pair           *path.Pair
	values         map[string][]float64
}

// The ports of the server: probed once all policies are programmed, and once one more is. New connections open to the
// port of bench/path.
const allPort, onePort, connectPort = 6100, 6200, 7000

func newContender(t *testing.T, name string, conf map[string]string) *contender {
	t.Helper()
	conf["CALICO_IPV4POOL_VXLAN"] = "Always"
	c := &contender{arena: newArena(t, conf), name: name, values: map[string][]float64{}}
	if name == "weft" {
		c.replaceFelix()
	}
	c.Do(http.MethodPost, "/api/v1/namespaces", fields{"metadata": fields{"name": namespace}})
	c.server = c.nodes[0].pod("server", fields{"app": "server"}).host()
	c.client = c.nodes[0].pod("client", fields{"app": "client"}).host()
	var err error
	c.pair, err = path.StartPair(filepath.Join(nettest.Programs(t), "weft-bench"), c.client.ns, c.server.ns, c.server.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.pair.Close)
	return c
}

func (c *contender) add(figure string, value float64) {
	c.values[figure] = append(c.values[figure], value)
}

// policy returns a policy of the server, which allows clients with a label.
func (c *contender) policy(name, app string, port int) fields {
	rule := func(protocol string, port int) fields {
		return fields{
			"action": "Allow", "protocol": protocol, "source": fields{"selector": "app == '" + app + "'"},
			"destination": fields{"ports": []int{port}},
		}
	}
	return object("NetworkPolicy", name, namespace, fields{
		"tier": "default", "selector": "app == 'server'", "types": []string{"Ingress"},
		"ingress": []fields{rule("UDP", port), rule("TCP", connectPort)},
	})
}

// createAll creates policies of which the last one allows the client, and returns the time until it does, in milliseconds.
func (c *contender) createAll(policies int) float64 {
	c.t.Helper()
	return c.untilArrives(allPort, func() {
		for i := range policies - 1 {
			c.create(c.policy(fmt.Sprintf("p%04d", i), fmt.Sprint("other", i), allPort))
		}
		c.create(c.policy(fmt.Sprintf("p%04d", policies-1), "client", allPort))
	})
}

// removeAll removes all policies and waits until a first policy denies packets again.
func (c *contender) removeAll() {
	c.t.Helper()
	deny := c.policy("deny", "absent", allPort)
	collection := c.path(deny)
	if !strings.Contains(string(c.Do(http.MethodGet, collection, nil)), `"deny"`) {
		c.create(deny) // and stays, so that nothing arrives before the client's policy
	}
	c.Do(http.MethodDelete, collection+"?fieldSelector=metadata.name!=deny", nil)
	c.untilDenied(allPort)
}

func (c *contender) createOne() float64 {
	c.t.Helper()
	return c.untilArrives(onePort, func() { c.create(c.policy("zlast", "client", onePort)) })
}

func (c *contender) removeOne() {
	c.t.Helper()
	c.Do(http.MethodDelete, c.path(c.policy("zlast", "client", onePort))+"/zlast", nil)
	c.untilDenied(onePort)
}

// probe is between two datagrams of a prober.
const probe = 500 * time.Microsecond

// prober sends datagrams from the client to the server, each as a new connection, until it is stopped.
type prober struct {
	arrived atomic.Int64 // when the last one has arrived, in nanoseconds of Unix time
	first   chan time.Time
	stop    func()
}

func (c *contender) prober(port uint16) *prober {
	c.t.Helper()
	p := &prober{first: make(chan time.Time, 1)}
	var in *net.UDPConn
	err := c.server.ns.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.server.addr, port)))
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{}, 2)
	go func() {
		defer func() { ended <- struct{}{} }()
		for b := make([]byte, 16); ; {
			if _, _, err := in.ReadFromUDPAddrPort(b); err != nil {
				return
			}
			p.arrived.Store(time.Now().UnixNano())
			select {
			case p.first <- time.Now():
			default:
			}
		}
	}()
	go func() {
		defer func() { ended <- struct{}{} }()
		_ = c.client.ns.Do(func() error {
			to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.server.addr, port))
			for {
				select {
				case <-end:
					return nil
				case <-time.After(probe):
				}
				if conn, err := net.DialUDP("udp4", nil, to); err == nil {
					_, _ = conn.Write([]byte("x"))
					_ = conn.Close()
				}
			}
		})
	}()
	p.stop = func() {
		close(end)
		_ = in.Close()
		<-ended
		<-ended
	}
	return p
}

// untilArrives returns the milliseconds from the start of an action to the first datagram that arrives.
func (c *contender) untilArrives(port uint16, act func()) float64 {
	c.t.Helper()
	p := c.prober(port)
	defer p.stop()
	begin := time.Now()
	act()
	select {
	case at := <-p.first:
		if at.Before(begin) {
			c.t.Fatalf("%s: a datagram arrived before it was allowed", c.name)
		}
		return float64(at.Sub(begin)) / float64(time.Millisecond)
	case <-time.After(limit):
		c.t.Fatalf("%s: port %d is not allowed after %s", c.name, port, limit)
	}
	return 0
}

// untilDenied waits until nothing has arrived for a while.
func (c *contender) untilDenied(port uint16) {
	c.t.Helper()
	p := c.prober(port)
	defer p.stop()
	const quiet = 300 * time.Millisecond
	begin := time.Now().UnixNano()
	c.until(fmt.Sprintf("%s: port %d is denied", c.name, port), func() bool {
		return time.Now().UnixNano()-max(begin, p.arrived.Load()) > int64(quiet)
	})
}
