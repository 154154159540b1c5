// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const dualRanges = `"ipam":{"type":"host-local","dataDir":"DATA","ranges":[[{"subnet":"10.6.0.0/24"}],[{"subnet":"fd00:6::/64"}]],
	"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`

// mainPlugins connect containers to the node, for both families.
func mainPlugins() map[string]string {
	return map[string]string{
		"bridge": conf("1.0.0", "bridge", `,"bridge":"sbr0","isDefaultGateway":true,`+dualRanges),
		"ptp":    conf("1.0.0", "ptp", ","+dualRanges),
	}
}

// beyond is a host next to the node, which has the addresses 192.0.2.1, 192.0.2.10 and 2001:db8::1 there and no route
// to containers.
func beyond(t *testing.T) *netns.NS {
	t.Helper()
	world := nettest.NS(t, "world")
	nettest.Run(t, nil, "sh", "-ec", `ip link add wire type veth peer name wire0
		ip link set wire0 netns `+world.Path()+`
		ip link set lo up; ip link set wire up
		ip addr add 192.0.2.1/24 dev wire; ip addr add 192.0.2.10/24 dev wire; ip addr add 2001:db8::1/64 dev wire nodad`)
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "wire") })
	nettest.Run(t, world, "sh", "-ec", `ip link set lo up; ip link set wire0 up
		ip addr add 192.0.2.2/24 dev wire0; ip addr add 2001:db8::2/64 dev wire0 nodad`)
	return world
}

// serve responds on a port of a container with the client's address, in both families.
func serve(t *testing.T, ns *netns.NS, network string, port int) {
	t.Helper()
	for _, family := range []string{"4", "6"} {
		err := ns.Do(func() error { return answerWho(t, network+family, fmt.Sprintf(":%d", port)) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

func answerWho(t *testing.T, network, at string) error {
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, at)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			buf := make([]byte, 64)
			for {
				_, who, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = c.WriteTo([]byte(who.(*net.UDPAddr).AddrPort().Addr().Unmap().String()), who)
			}
		}()
		return nil
	}
	l, err := net.Listen(network, at)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String()))
			_ = c.Close()
		}
	}()
	return nil
}

// seen sends to an address and returns the source address that the server saw; "" without a response.
func seen(from *netns.NS, network, to string) string {
	var c net.Conn
	err := from.Do(func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
		defer cancel()
		c, err = (&net.Dialer{}).DialContext(ctx, network, to)
		return err
	})
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, 64)
	for range 3 {
		if network == "udp" {
			_, _ = c.Write([]byte("who am I"))
		}
		_ = c.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
		if n, err := c.Read(buf); err == nil {
			return string(buf[:n])
		}
	}
	return ""
}

// answered returns what seen returns, and asks again for half a minute where an answer is expected: neighbors may have to be
// resolved first, which takes longer than seen waits if a packet is lost.
func answered(from *netns.NS, network, to string, want bool) string {
	got := seen(from, network, to)
	for end := time.Now().Add(30 * time.Second); want && got == "" && time.Now().Before(end); {
		got = seen(from, network, to)
	}
	return got
}

// mapped returns a portmap configuration with a previous result.
func mapped(prev, options, mappings string) string {
	return with(prev, conf("1.0.0", "portmap", options+`,"runtimeConfig":{"portMappings":[`+mappings+`]}`))
}

// settled waits until no address of the node is tentative: until then a bridge does not resolve the destinations of
// forwarded packets.
func settled(t *testing.T) {
	t.Helper()
	for range 600 {
		if nettest.Run(t, nil, "ip", "-6", "addr", "show", "tentative") == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("addresses of the node are still tentative after a minute")
}

func clearNft(t *testing.T) {
	t.Helper()
	nettest.Run(t, nil, "nft", "flush", "ruleset")
	t.Cleanup(func() { nettest.Run(t, nil, "nft", "flush", "ruleset") })
}

func TestPortmapTraffic(t *testing.T) {
	for typ, main := range mainPlugins() {
		t.Run(typ, func(t *testing.T) {
			h := newHost(t)
			clearNft(t)
			world := beyond(t)
			a, b := nettest.NS(t, "a"), nettest.NS(t, "b")
			prev := h.must(typ, "ADD", main, a).stdout
			other := h.must(typ, "ADD", main, b, "CNI_CONTAINERID=c2").stdout
			defer func() {
				h.must(typ, "DEL", main, b, "CNI_CONTAINERID=c2")
				h.must(typ, "DEL", main, a)
			}()
			serve(t, a, "tcp", 80)
			serve(t, a, "udp", 53)
			ports := mapped(prev, "",
				`{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":5353,"containerPort":53,"protocol":"udp"},
				{"hostPort":8081,"containerPort":80,"protocol":"TCP","hostIP":"192.0.2.10"},{"hostPort":8082,"containerPort":80,"protocol":"tcp","hostIP":"2001:db8::1"},
				{"hostPort":8083,"containerPort":80,"protocol":"tcp","hostIP":"0.0.0.0"},{"hostPort":8084,"containerPort":80,"protocol":"tcp","hostIP":"127.0.0.1"}`)
			result := h.must("portmap", "ADD", ports, a)
			sameJSON(t, prev, result.stdout)
			h.must("portmap", "CHECK", ports, a)
			settled(t)
			own, neighbor := addressOf(t, prev), addressOf(t, other)
			gw := "10.6.0.1"
			any6 := "fd00:6::1"
			for _, c := range []struct {
				from        *netns.NS
				network, to string
				want        string // * is any source
			}{
				{world, "tcp", "192.0.2.1:8080", "192.0.2.2"},
				{world, "tcp", "192.0.2.10:8080", "192.0.2.2"},
				{world, "udp", "192.0.2.1:5353", "192.0.2.2"},
				{world, "tcp", "[2001:db8::1]:8080", "2001:db8::2"},
				{world, "udp", "[2001:db8::1]:5353", "2001:db8::2"},
				{world, "tcp", "192.0.2.10:8081", "192.0.2.2"},
				{world, "tcp", "192.0.2.1:8081", ""},
				{world, "tcp", "[2001:db8::1]:8082", "2001:db8::2"},
				{world, "tcp", "192.0.2.1:8082", ""},
				{world, "tcp", "192.0.2.1:8083", "192.0.2.2"},
				{world, "tcp", "[2001:db8::1]:8083", ""},
				{world, "tcp", "192.0.2.1:8084", ""},
				{nil, "tcp", "127.0.0.1:8080", "*"},
				{nil, "udp", "127.0.0.1:5353", "*"},
				{nil, "tcp", "127.0.0.1:8084", "*"},
				{nil, "tcp", "192.0.2.1:8080", "*"},
				{nil, "tcp", "192.0.2.1:8084", ""},
				{nil, "tcp", gw + ":8080", "*"},
				{nil, "tcp", "[::1]:8080", ""},
				{nil, "tcp", "[2001:db8::1]:8080", "*"},
				{a, "tcp", "192.0.2.1:8080", "*"},
				{a, "udp", gw + ":5353", "*"},
				{a, "tcp", "[2001:db8::1]:8080", "*"},
				{b, "tcp", "192.0.2.1:8080", "*"},
				{b, "udp", gw + ":5353", "*"},
				{b, "tcp", "[" + any6 + "]:8080", "*"},
				{b, "tcp", own + ":80", neighbor},
			} {
				got := answered(c.from, c.network, c.to, c.want != "")
				if got != c.want && (c.want != "*" || got == "") {
					t.Errorf("%s to %s from %v: seen as %q, want %q", c.network, c.to, name(c.from, world, a, b), got, c.want)
				}
			}
			// A route for 127.0.0.0/8 over a link must not let the container in.
			serve(t, nil, "tcp", 7777)
			nettest.Run(t, b, "ip", "route", "add", "127.0.0.2", "via", gw, "dev", "eth0")
			nettest.Run(t, b, "sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1", "net.ipv4.conf.eth0.route_localnet=1")
			if got := seen(b, "tcp", "127.0.0.2:7777"); got != "" {
				t.Errorf("a container speaks to the node's 127.0.0.2 as %s", got)
			}
			h.must("portmap", "DEL", ports, a)
			if got := seen(world, "tcp", "192.0.2.1:8080"); got != "" {
				t.Error("a port is open after DEL")
			}
			if left := nettest.Run(t, nil, "nft", "list", "ruleset"); strings.Contains(left, "weft_hostports") && typ == "ptp" {
				t.Errorf("left after DEL:\n%s", left)
			}
		})
	}
}

func name(ns *netns.NS, of ...*netns.NS) string {
	i := slices.Index(of, ns)
	return append([]string{"world", "itself", "neighbor"}, "node")[(i+4)%4]
}
