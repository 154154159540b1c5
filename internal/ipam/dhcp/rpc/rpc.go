// SPDX-License-Identifier: Apache-2.0

// Package rpc implements the protocol between the reference plugin dhcp and its daemon: Go's net/rpc over HTTP on a
// unix socket, so that the daemon may be the reference's. Values are encoded by encoding/gob. The two structures around
// them and the handshake are implemented here, because net/rpc would bring net/http into a program that is started for
// each call. (The daemon's side is in dhcp/lease.)
//
//	→ CONNECT /_goRPC_ HTTP/1.0        ← HTTP/1.0 200 Connected to Go RPC
//	→ Request, Args                    ← Response, Reply
package rpc

import "errors"

// DefaultSocket is the reference daemon's socket.
const DefaultSocket = "/run/cni/dhcp.sock"

// These are the methods. The reference daemon has the first two; for CHECK it is called with Allocate.
const (
	Allocate = "DHCP.Allocate"
	Release  = "DHCP.Release"
	// Inspect returns, without side effects, a lease's state; Collect releases leases without a valid attachment. They are
	// weft's.
	Inspect = "DHCP.Inspect"
	Collect = "DHCP.Collect"
)

// These are the lines of the handshake.
const (
	Connect   = "CONNECT /_goRPC_ HTTP/1.0\n\n"
	Connected = "200 Connected to Go RPC"
	// NoMethod is the prefix of the error for an unknown method.
	NoMethod = "rpc: can't find method "
)

// MaxMessage limits, in bytes, what a daemon reads for one call, and what a client reads from its connection:
// encoding/gob itself would accept a gigabyte.
const MaxMessage = 4 << 20

// ErrNoMethod is wrapped by the error for a method that the daemon does not know, as the reference's.
var ErrNoMethod = errors.New("the daemon does not know this method")

// ErrDaemon is wrapped by every other error that the daemon returns.
var ErrDaemon = errors.New("dhcp daemon")

// Request precedes the arguments of a call.
type Request struct {
	ServiceMethod string
	Seq           uint64
}

// Response precedes the reply to a call. If it has an error, the reply must be ignored.
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
