// SPDX-License-Identifier: Apache-2.0

// Package rpc speaks what the reference plugin dhcp says to its daemon: Go's net/rpc over HTTP on a unix socket, so
// that a daemon can be the reference's. It is written out here, down to encoding/gob: those packages would bring more
// into a program that starts once for each call than all the rest of it. (The daemon's side is in dhcp/lease.)
//
//	→ CONNECT /_goRPC_ HTTP/1.0        ← HTTP/1.0 200 Connected to Go RPC
//	→ gob request, gob arguments       ← gob response, gob reply
package rpc

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// DefaultSocket is where the reference daemon listens.
const DefaultSocket = "/run/cni/dhcp.sock"

// The methods. The reference daemon has the first two; by Allocate it also checks.
const (
	Allocate = "DHCP.Allocate"
	Release  = "DHCP.Release"
	// Inspect tells, without side effects, what a lease is like; Collect releases what is in no list. They are weft's.
	Inspect = "DHCP.Inspect"
	Collect = "DHCP.Collect"
)

// The words of the handshake.
const (
	Connect   = "CONNECT /_goRPC_ HTTP/1.0\n\n"
	Connected = "200 Connected to Go RPC"
	// NoMethod begins the answer to a method that a daemon does not know.
	NoMethod = "rpc: can't find method "
)

// ErrNoMethod is wrapped by the answer of a daemon that does not know the method: the reference's.
var ErrNoMethod = errors.New("the daemon does not know this method")

// ErrDaemon is wrapped by every other error that the daemon answers.
var ErrDaemon = errors.New("dhcp daemon")

// Args are the arguments of every method: the plugin's environment and its standard input.
type Args struct {
	ContainerID   string
	Netns         string
	IfName        string
	Args          string
	Path          string
	NetnsOverride string
	StdinData     []byte
}

// result reads the reply to Allocate: a Result of the reference's library.
func result(reply any) (model.Result, error) {
	var r model.Result
	root, _ := reply.(map[string]any)
	for _, v := range items(root["IPs"]) {
		ip := model.IP{Gateway: addr(v["Gateway"])}
		var err error
		if ip.Address, err = prefix(v["Address"]); err != nil {
			return r, err
		}
		r.IPs = append(r.IPs, ip)
	}
	for _, v := range items(root["Routes"]) {
		x := model.Route{
			GW: addr(v["GW"]), MTU: number(v["MTU"]), AdvMSS: number(v["AdvMSS"]), Priority: number(v["Priority"]),
			Table: optional(v["Table"]), Scope: optional(v["Scope"]),
		}
		var err error
		if x.Dst, err = prefix(v["Dst"]); err != nil {
			return r, err
		}
		r.Routes = append(r.Routes, x)
	}
	dns, _ := root["DNS"].(map[string]any)
	domain, _ := dns["Domain"].(string)
	r.DNS = model.DNS{
		Nameservers: strings(dns["Nameservers"]), Domain: domain, Search: strings(dns["Search"]),
		Options: strings(dns["Options"]),
	}
	return r, nil
}

func items(v any) []map[string]any {
	list, _ := v.([]any)
	var out []map[string]any
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func strings(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func number(v any) int {
	n, _ := v.(int64)
	return int(n)
}

// optional is what a pointer points to. Neither a nil one nor one to a zero is sent.
func optional(v any) *int {
	if v == nil {
		return nil
	}
	n := number(v)
	return &n
}

func addr(v any) netip.Addr {
	b, _ := v.([]byte)
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

// prefix reads a net.IPNet.
func prefix(v any) (netip.Prefix, error) {
	m, _ := v.(map[string]any)
	a := addr(m["IP"])
	mask, _ := m["Mask"].([]byte)
	if a.Is4() && len(mask) == 16 {
		mask = mask[12:]
	}
	ones, open := 0, true
	for _, b := range mask {
		for bit := byte(128); bit > 0; bit >>= 1 {
			if b&bit == 0 {
				open = false
			} else if ones++; !open {
				return netip.Prefix{}, fmt.Errorf("%w: mask % x has holes", ErrDaemon, mask)
			}
		}
	}
	if !a.IsValid() || len(mask) != a.BitLen()/8 {
		return netip.Prefix{}, fmt.Errorf("%w: address %v with mask % x", ErrDaemon, m["IP"], mask)
	}
	return netip.PrefixFrom(a, ones), nil
}
