// SPDX-License-Identifier: Apache-2.0

// Package rpc speaks what the reference plugin dhcp and its daemon say to each other: Go's net/rpc over HTTP on a unix
// socket, so that either side can be the reference's. It is written out here, in the words of encoding/gob, because
// net/rpc brings net/http and html/template into a program that starts once for each call.
//
//	→ CONNECT /_goRPC_ HTTP/1.0        ← HTTP/1.0 200 Connected to Go RPC
//	→ gob request, gob arguments       ← gob response, gob reply
package rpc

import (
	"errors"
	"net"

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

const (
	connect   = "CONNECT /_goRPC_ HTTP/1.0\n\n"
	connected = "200 Connected to Go RPC"
)

// ErrNoMethod is wrapped by the answer of a daemon that does not know the method: the reference's.
var ErrNoMethod = errors.New("the daemon does not know this method")

// ErrDaemon is wrapped by every other error that the daemon answers.
var ErrDaemon = errors.New("dhcp daemon")

// request and response go before each body.
type request struct {
	ServiceMethod string
	Seq           uint64
}

type response struct {
	ServiceMethod string
	Seq           uint64
	Error         string
}

// Args are the arguments of every method: the plugin's environment and its standard input. For Collect, whose network is
// in the configuration, the valid attachments are there too.
type Args struct {
	ContainerID   string
	Netns         string
	IfName        string
	Args          string
	Path          string
	NetnsOverride string
	StdinData     []byte
}

// Result is the reply to Allocate, in the form of the reference's library.
type Result struct {
	CNIVersion string
	Interfaces []*Interface
	IPs        []*IP
	Routes     []*Route
	DNS        DNS
}

// Interface is an interface of a Result; an IPAM result has none.
type Interface struct {
	Name, Mac, Sandbox, SocketPath, PciID string
	Mtu                                   int
}

// IP is an address of a Result.
type IP struct {
	Interface *int
	Address   net.IPNet
	Gateway   net.IP
}

// Route is a route of a Result.
type Route struct {
	Dst                   net.IPNet
	GW                    net.IP
	MTU, AdvMSS, Priority int
	Table, Scope          *int
}

// DNS is the name resolution of a Result.
type DNS struct {
	Nameservers []string
	Domain      string
	Search      []string
	Options     []string
}

// ToResult is the wire's form of a result.
func ToResult(r model.Result) Result {
	out := Result{CNIVersion: "1.1.0", DNS: DNS(r.DNS)}
	for _, ip := range r.IPs {
		out.IPs = append(out.IPs, &IP{Address: toNet(ip.Address), Gateway: toIP(ip.Gateway)})
	}
	for _, x := range r.Routes {
		out.Routes = append(out.Routes, &Route{
			Dst: toNet(x.Dst), GW: toIP(x.GW), MTU: x.MTU, AdvMSS: x.AdvMSS, Priority: x.Priority, Table: x.Table, Scope: x.Scope,
		})
	}
	return out
}

// Model is a result in our own words.
func (r Result) Model() (model.Result, error) {
	out := model.Result{DNS: model.DNS(r.DNS)}
	for _, ip := range r.IPs {
		p, err := fromNet(ip.Address)
		if err != nil {
			return out, err
		}
		out.IPs = append(out.IPs, model.IP{Address: p, Gateway: fromIP(ip.Gateway)})
	}
	for _, x := range r.Routes {
		p, err := fromNet(x.Dst)
		if err != nil {
			return out, err
		}
		out.Routes = append(out.Routes, model.Route{
			Dst: p, GW: fromIP(x.GW), MTU: x.MTU, AdvMSS: x.AdvMSS, Priority: x.Priority, Table: x.Table, Scope: x.Scope,
		})
	}
	return out, nil
}
