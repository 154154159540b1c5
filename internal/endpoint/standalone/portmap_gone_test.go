// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// Mappings are removed without namespace, mappings in the configuration, or record; GC removes what no valid attachment
// owns, and nothing else.
func TestPortmapGoes(t *testing.T) {
	for name, c := range map[string]struct{ options, mark string }{
		"nftables": {"", "weft:n/"},
		"iptables": {`,"backend":"iptables"`, `CNI-DN-`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			flushed(t)
			ns, prev, gone := twins(t, h)
			defer gone()
			first, second := mapped(prev[0], c.options, onPort(8080, "")), mapped(prev[1], c.options, onPort(8081, ""))
			one, two := "CNI_CONTAINERID=c0", "CNI_CONTAINERID=c1"
			add := func() {
				t.Helper()
				h.must("portmap", "ADD", first, ns[0], one)
				h.must("portmap", "ADD", second, ns[1], two)
			}
			want := func(when string, ports ...bool) {
				t.Helper()
				for i, there := range ports {
					if found := rules(t, fmt.Sprint(8080+i)); len(found) > 0 != there {
						t.Errorf("%s: port %d: %v", when, 8080+i, found)
					}
				}
			}
			add()
			want("after ADD", true, true)
			h.must("portmap", "DEL", conf("1.1.0", "portmap", c.options), nil, one)
			want("after DEL without namespace and mappings", false, true)
			add2 := func() {
				t.Helper()
				h.must("portmap", "ADD", first, ns[0], one)
				if err := os.RemoveAll(h.journal); err != nil {
					t.Fatal(err)
				}
			}
			add2()
			h.must("portmap", "DEL", conf("1.1.0", "portmap", c.options), nil, one)
			want("after DEL without record", false, true)
			add2()
			gc := conf("1.1.0", "portmap", c.options+`,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]`)
			h.must("portmap", "GC", gc, nil)
			want("after GC", false, true)
			h.must("portmap", "GC", strings.Replace(gc, "c1", "c7", 1), nil)
			want("after GC of all", false, false)
			wantRules(t, "at the end", c.mark, false)
		})
	}
}

// STATUS reports a missing backend.
func TestPortmapStatus(t *testing.T) {
	h := newHost(t)
	h.must("portmap", "STATUS", conf("1.1.0", "portmap", ""), nil)
	t.Setenv("PATH", t.TempDir())
	h.must("portmap", "STATUS", conf("1.1.0", "portmap", ""), nil)
	a := h.call("portmap", "STATUS", conf("1.1.0", "portmap", `,"backend":"iptables"`), nil)
	if _, err := os.Stat("/usr/sbin/iptables-restore"); err == nil {
		if a.exit != 0 {
			t.Errorf("STATUS where iptables is in a directory of administrators: %s", a.stdout)
		}
		return
	}
	if a.code() != 50 || !strings.Contains(a.stdout, "iptables-restore") {
		t.Errorf("STATUS without iptables: %s", a.stdout)
	}
}

// TestPortmapSCTP sends SCTP to a port of the node, in both families.
func TestPortmapSCTP(t *testing.T) {
	h := newHost(t)
	flushed(t)
	world := beyond(t)
	ns, prev, gone := twins(t, h)
	defer gone()
	settled(t)
	probe, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		nettest.Skip(t, "no SCTP: "+err.Error())
	}
	_ = unix.Close(probe)
	ports := mapped(prev[0], "", `{"hostPort":9999,"containerPort":99,"protocol":"sctp"}`)
	h.must("portmap", "ADD", ports, ns[0], "CNI_CONTAINERID=c0")
	h.must("portmap", "CHECK", ports, ns[0], "CNI_CONTAINERID=c0")
	node4, node6 := [4]byte{192, 0, 2, 1}, [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1}
	for _, c := range []struct{ listen, to unix.Sockaddr }{
		{&unix.SockaddrInet4{Port: 99}, &unix.SockaddrInet4{Port: 9999, Addr: node4}},
		{&unix.SockaddrInet6{Port: 99}, &unix.SockaddrInet6{Port: 9999, Addr: node6}},
	} {
		if got := sctp(t, ns[0], world, c.listen, c.to); got != "weft" {
			t.Errorf("%T: %q came", c.to, got)
		}
	}
	h.must("portmap", "DEL", ports, ns[0], "CNI_CONTAINERID=c0")
}

// sctp sends a word from one namespace to a socket of another.
func sctp(t *testing.T, server, client *netns.NS, listen, to unix.Sockaddr) string {
	t.Helper()
	family := unix.AF_INET
	if _, six := to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	open := func(ns *netns.NS) int {
		fd := -1
		err := ns.Do(func() (err error) {
			fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if family == unix.AF_INET6 { // the other family has a socket of its own
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
				t.Fatal(err)
			}
		}
		wait := unix.NsecToTimeval(int64(3 * time.Second))
		if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait)); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	l, c := open(server), open(client)
	if err := errors.Join(unix.Bind(l, listen), unix.Listen(l, 1)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(c, to); err != nil {
		t.Errorf("connect: %v", err)
		return ""
	}
	if _, err := unix.Write(c, []byte("weft")); err != nil {
		t.Fatal(err)
	}
	s, _, err := unix.Accept(l)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(s) }()
	buf := make([]byte, 16)
	n, err := unix.Read(s, buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}
