// SPDX-License-Identifier: Apache-2.0

// Package rpc speaks what the reference plugin dhcp says to its daemon: Go's net/rpc over HTTP on a unix socket, so
// that a daemon can be the reference's. Values are encoding/gob's; the two structures around them and the handshake are
// written out here, because net/rpc itself would bring net/http into a program that starts once for each call. (The
// daemon's side is in dhcp/lease.)
//
//	→ CONNECT /_goRPC_ HTTP/1.0        ← HTTP/1.0 200 Connected to Go RPC
//	→ Request, Args                    ← Response, Reply
package rpc

import "errors"

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

// MaxMessage bounds what a daemon reads of one call, and a client of a connection, which it makes for one call, in
// bytes: encoding/gob itself would take a gigabyte.
const MaxMessage = 4 << 20

// ErrNoMethod is wrapped by the answer of a daemon that does not know the method: the reference's.
var ErrNoMethod = errors.New("the daemon does not know this method")

// ErrDaemon is wrapped by every other error that the daemon answers.
var ErrDaemon = errors.New("dhcp daemon")

// Request goes before the arguments of a call.
type Request struct {
	ServiceMethod string
	Seq           uint64
}

// Response goes before the reply to a call. Where it has an error, the reply is to be ignored.
type Response struct {
	ServiceMethod string
	Seq           uint64
	Error         string
}

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
