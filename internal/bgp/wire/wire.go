// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol between the agent and weft-bgp over a unix socket: one JSON value per line. The agent
// connects and sends what it knows of the cluster, again after each change; weft-bgp plans what the speaker does. It sends
// its whole state first, and then changes. Sessions continue while no agent is connected; the last one that connected is
// served.
package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/bgp"
)

// Version is the protocol's; the two programs are of one release, and another version is refused.
const Version = 1

// maxLine limits a message, in bytes: the facts of a thousand nodes have some hundred kilobytes.
const maxLine = 64 << 20

// Request is a message of the agent: facts for a plan.
type Request struct {
	Version int          `json:"version"`
	Self    string       `json:"self"`
	Nodes   []model.Node `json:"nodes"`
	// Pools are the prefixes of the cluster's pools, by name.
	Pools map[string][]netip.Prefix `json:"pools,omitempty"`
	// Unexported are the prefixes of pools that are not announced.
	Unexported []netip.Prefix `json:"unexported,omitempty"`
	// Objects are the manifests of BGP's kinds.
	Objects []json.RawMessage `json:"objects,omitempty"`
	// Passwords are those that the last Plan needs, and that exist: by SecretName.
	Passwords map[string]string `json:"passwords,omitempty"`
	// Own, OnLink, Services and Backend are as in bgp.Facts.
	Own      []netip.Prefix     `json:"own,omitempty"`
	OnLink   []netip.Prefix     `json:"onLink,omitempty"`
	Services []model.BGPService `json:"services,omitempty"`
	Backend  bool               `json:"backend,omitempty"`
}

// SecretName returns the key of Request.Passwords for the key of a Secret.
func SecretName(k model.SecretKey) string { return k.Name + "/" + k.Key }

// Plan is what weft-bgp has planned.
type Plan struct {
	ASN         uint32          `json:"asNumber"`
	RouterID    netip.Addr      `json:"routerID,omitzero"`
	RestartTime int             `json:"restartTime"` // seconds
	Announced   []bgp.Announced `json:"announced"`
	Problems    []bgp.Problem   `json:"problems,omitempty"`
	// Secrets are the passwords that the plan needs.
	Secrets []model.SecretKey `json:"secrets,omitempty"`
}

// Update is a message of the speaker.
type Update struct {
	Version int `json:"version"`
	// Whole: what is not in this message does not exist.
	Whole bool `json:"whole,omitempty"`
	// Routes are new and changed ones, Withdrawn those that are gone.
	Routes    []bgp.Route    `json:"routes,omitempty"`
	Withdrawn []netip.Prefix `json:"withdrawn,omitempty"`
	// Peers are all peers; nil if nothing about them has changed.
	Peers []bgp.PeerState `json:"peers,omitempty"`
	// Plan is the new plan; nil if it has not changed.
	Plan *Plan `json:"plan,omitempty"`
	// Synced: every peer has announced all of its routes since the speaker started, or its time for that is over. Until
	// then routes of an earlier speaker stay.
	Synced bool `json:"synced,omitempty"`
	// Error is why the configuration is not in force; empty if it is.
	Error string `json:"error,omitempty"`
}

// Conn sends and receives messages. Send and Receive may be called concurrently with each other.
type Conn struct {
	c   net.Conn
	in  *bufio.Scanner
	out *json.Encoder
}

// NewConn returns a Conn on a connection, which it closes.
func NewConn(c net.Conn) *Conn {
	in := bufio.NewScanner(c)
	in.Buffer(nil, maxLine)
	return &Conn{c: c, in: in, out: json.NewEncoder(c)}
}

// Close closes the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Send sends a message: a Request or an Update.
func (c *Conn) Send(message any) error { return c.out.Encode(message) }

// Receive waits for a message and decodes it.
func (c *Conn) Receive(into any) error {
	if !c.in.Scan() {
		if err := c.in.Err(); err != nil {
			return err
		}
		return errClosed
	}
	if err := json.Unmarshal(c.in.Bytes(), into); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	return nil
}

var errClosed = errors.New("connection is closed")

// CheckVersion returns an error for another version of the protocol.
func CheckVersion(v int) error {
	if v != Version {
		return fmt.Errorf("version %d of the protocol is not %d: weft-agent and weft-bgp are of different releases", v, Version)
	}
	return nil
}
