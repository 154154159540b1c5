// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	gorpc "net/rpc"
	"path/filepath"
	"strings"
	"testing"
	"time"

	types "github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

// DHCP is a daemon written like the reference's: with net/rpc and the reference library's types.
type DHCP struct {
	got    Args
	answer current.Result
}

// Allocate returns what the test wants.
func (d *DHCP) Allocate(args *Args, result *current.Result) error {
	d.got = *args
	if args.ContainerID == "bad" {
		return errors.New("not today")
	}
	*result = d.answer
	return nil
}

// Release returns nothing.
func (d *DHCP) Release(args *Args, _ *struct{}) error {
	d.got = *args
	return nil
}

// serve runs the daemon and returns its socket.
func serve(t *testing.T, d *DHCP) string {
	t.Helper()
	server := gorpc.NewServer()
	if err := server.Register(d); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(gorpc.DefaultRPCPath, server)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return socket
}

func call(t *testing.T, socket, method string, args Args) (model.Result, error) {
	t.Helper()
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	return c.Call(t.Context(), method, args)
}

// Go's own net/rpc with the reference library's types decodes what the client sends, and the client decodes its
// replies.
func TestCall(t *testing.T) {
	const answer = `{"cniVersion":"1.1.0","interfaces":[{"name":"x","mac":"m","mtu":5}],
		"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"fd00::5/64","interface":0}],
		"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1","mtu":1400,"advmss":1000,"priority":5,"table":300,"scope":253},{"dst":"fd01::/64"}],
		"dns":{"nameservers":["10.0.0.53","10.0.0.54"],"domain":"example.org","search":["a","b"],"options":["x:1"]}}`
	d := &DHCP{}
	var want model.Result
	for _, v := range []any{&d.answer, &want} {
		if err := json.Unmarshal([]byte(answer), v); err != nil {
			t.Fatal(err)
		}
	}
	want.Interfaces, want.IPs[1].Interface = nil, nil // an IPAM result has none
	socket := serve(t, d)
	args := Args{
		ContainerID: "c", Netns: "/n", IfName: "eth0", Args: "A=b", Path: "/p", NetnsOverride: "1",
		StdinData: bytes.Repeat([]byte("x"), 70000),
	}
	got, err := call(t, socket, Allocate, args)
	if err != nil {
		t.Fatal(err)
	}
	text := func(v any) string {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if diff := cmp.Diff(text(want), text(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(args, d.got); diff != "" {
		t.Errorf("arguments (-sent +received):\n%s", diff)
	}
	if _, err := call(t, socket, Release, Args{ContainerID: "r"}); err != nil || d.got.ContainerID != "r" {
		t.Errorf("release: %v, %+v", err, d.got)
	}
	if _, err := call(t, socket, Allocate, Args{ContainerID: "bad"}); !errors.Is(err, ErrDaemon) ||
		err.Error() != "dhcp daemon: not today" {
		t.Errorf("the daemon's error: %v", err)
	}
	if _, err := call(t, socket, Inspect, Args{}); !errors.Is(err, ErrNoMethod) {
		t.Errorf("a method of weft's own: %v", err)
	}
}

func TestDial(t *testing.T) {
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no socket")
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := Dial(ctx, socket); err == nil || time.Since(begin) > 5*time.Second {
		t.Errorf("a silent daemon: %v after %s", err, time.Since(begin))
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.0 405 must CONNECT\n\n"))
			_ = conn.Close()
		}
	}()
	if _, err := Dial(t.Context(), socket); err == nil {
		t.Error("something else listens there")
	}
}

// The client stops reading a daemon's endless response.
func TestEndless(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	message := func(size ...byte) string { return string(size) + strings.Repeat("\x00", 2*MaxMessage) }
	for name, says := range map[string]string{
		"greeting":      "HTTP/1.0 " + Connected + "\n" + strings.Repeat("x\n", MaxMessage),
		"message":       "HTTP/1.0 " + Connected + "\n\n" + message(0xfc, 0x20, 0, 0, 0), // it claims to have 512 MiB
		"many messages": "HTTP/1.0 " + Connected + "\n\n" + strings.Repeat("\x01", 2*MaxMessage),
	} {
		t.Run(name, func(t *testing.T) {
			taken := make(chan int, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					taken <- 0
					return
				}
				n, _ := conn.Write([]byte(says))
				_ = conn.Close()
				taken <- n
			}()
			c, err := Dial(t.Context(), socket)
			if err == nil {
				_, err = c.Call(t.Context(), Allocate, Args{})
				_ = c.Close()
			}
			if err == nil {
				t.Error("the client accepted it")
			}
			if n := <-taken; n == 0 || n == len(says) {
				t.Errorf("%d of %d bytes were taken: %v", n, len(says), err)
			}
		})
	}
}

func TestMask(t *testing.T) {
	v4, mapped := net.IP{10, 0, 0, 1}, net.ParseIP("10.0.0.1")
	for _, c := range []struct {
		name string
		n    net.IPNet
		want string
	}{
		{"IPv4", net.IPNet{IP: v4, Mask: net.CIDRMask(24, 32)}, "10.0.0.1/24"},
		{"sixteen bytes", net.IPNet{IP: mapped, Mask: net.CIDRMask(120, 128)}, "10.0.0.1/24"},
		{"an address of sixteen, a mask of four", net.IPNet{IP: mapped, Mask: net.CIDRMask(0, 32)}, "10.0.0.1/0"},
		{"IPv6", net.IPNet{IP: net.ParseIP("fd00::1"), Mask: net.CIDRMask(64, 128)}, "fd00::1/64"},
		{"IPv6, mask of IPv4", net.IPNet{IP: net.ParseIP("fd00::1"), Mask: net.CIDRMask(24, 32)}, ""},
		{"holes", net.IPNet{IP: v4, Mask: net.IPMask{255, 0, 255, 0}}, ""},
		{"no mask", net.IPNet{IP: v4}, ""},
		{"no address", net.IPNet{Mask: net.CIDRMask(24, 32)}, ""},
		{"five bytes", net.IPNet{IP: make(net.IP, 5), Mask: net.CIDRMask(24, 32)}, ""},
	} {
		r, err := Reply{IPs: []IP{{Address: c.n}}}.Result()
		if c.want == "" {
			if !errors.Is(err, ErrDaemon) {
				t.Errorf("%s: %v, %v", c.name, r.IPs, err)
			}
			continue
		}
		if err != nil || r.IPs[0].Address.String() != c.want {
			t.Errorf("%s: %v, %v", c.name, r.IPs, err)
		}
	}
}

// FuzzAnswer: every response of a daemon is decoded or rejected.
func FuzzAnswer(f *testing.F) {
	var b bytes.Buffer
	enc := gob.NewEncoder(&b)
	one := 1
	if err := errors.Join(
		enc.Encode(gorpc.Response{ServiceMethod: Allocate, Seq: 1}),
		enc.Encode(current.Result{
			CNIVersion: "1.1.0", IPs: []*current.IPConfig{
				{Interface: &one, Address: net.IPNet{IP: net.IP{10, 0, 0, 1}, Mask: net.CIDRMask(24, 32)}},
			},
			Routes: []*types.Route{{Dst: net.IPNet{IP: net.IP{10, 0, 0, 0}, Mask: net.CIDRMask(8, 32)}, Scope: &one}},
		})); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := answer(bufio.NewReader(bytes.NewReader(data)), Allocate)
		if err != nil {
			return
		}
		for _, ip := range r.IPs {
			if !ip.Address.IsValid() {
				t.Errorf("an answer with the address %v", ip.Address)
			}
		}
	})
}
