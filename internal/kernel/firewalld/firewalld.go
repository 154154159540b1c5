// SPDX-License-Identifier: Apache-2.0

// Package firewalld adds addresses to zones of firewalld, over the system's D-Bus.
//
// weft changes the runtime configuration, not the permanent one: a reload of firewalld drops the addresses, and the
// agent's watch adds them again. Whether firewalld runs is queried once for each connection to the bus, which then
// reports changes; without a bus it costs one stat of the socket's path.
package firewalld

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"

	"github.com/weft-net/weft/internal/state"
)

// Socket is the path of the system bus.
const Socket = "/run/dbus/system_bus_socket"

const (
	busName   = "org.fedoraproject.FirewallD1"
	objPath   = "/org/fedoraproject/FirewallD1"
	zoneFace  = busName + ".zone."
	ownerFace = "org.freedesktop.DBus"
)

// Errors that callers check.
var (
	// ErrAbsent is wrapped when firewalld is not on the bus.
	ErrAbsent = errors.New("firewalld is not on the system's D-Bus")
	// ErrForeign is wrapped when an address is in another zone than the wanted one.
	ErrForeign = errors.New("is in another zone")
)

// Client is a client of the firewalld on one bus. It is safe for concurrent use.
type Client struct {
	socket string

	mu      sync.Mutex
	bus     *dbus.Conn
	running bool // as last reported by the bus
}

// New returns a client; it opens nothing yet.
func New(socket string) *Client { return &Client{socket: socket} }

// Close closes the connection to the bus.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hangUp()
}

func (c *Client) hangUp() error {
	c.running = false
	if c.bus == nil {
		return nil
	}
	err := c.bus.Close()
	c.bus = nil
	return err
}

// Running reports whether firewalld is on the bus.
func (c *Client) Running(ctx context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bus != nil && c.bus.Connected() {
		return c.running, nil
	}
	if _, err := os.Stat(c.socket); err != nil {
		return false, errors.Join(c.hangUp(), present(err))
	}
	if err := c.connect(ctx); err != nil {
		_ = c.hangUp()
		return false, nil // without a server on the bus there is no firewalld
	}
	return c.running, nil
}

func present(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("D-Bus: %w", err)
}

// connect subscribes to changes of firewalld's presence on the bus, then queries it.
func (c *Client) connect(ctx context.Context) error {
	_ = c.hangUp()
	bus, err := dbus.Connect("unix:path="+c.socket, dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		return err
	}
	c.bus = bus
	err = bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(ownerFace), dbus.WithMatchInterface(ownerFace),
		dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, busName))
	if err != nil {
		return err
	}
	signals := make(chan *dbus.Signal, 8)
	bus.Signal(signals)
	go c.follow(bus, signals)
	return bus.BusObject().CallWithContext(ctx, ownerFace+".NameHasOwner", 0, busName).Store(&c.running)
}

// follow records changes of firewalld's presence until the connection ends.
func (c *Client) follow(bus *dbus.Conn, signals <-chan *dbus.Signal) {
	for s := range signals {
		if s.Name != ownerFace+".NameOwnerChanged" || len(s.Body) != 3 {
			continue
		}
		owner, _ := s.Body[2].(string)
		c.mu.Lock()
		if c.bus == bus {
			c.running = owner != ""
		}
		c.mu.Unlock()
	}
}

// call calls a method about an address. Without firewalld on the bus it returns ErrAbsent.
func (c *Client) call(ctx context.Context, method string, args ...any) (string, error) {
	running, err := c.Running(ctx)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	bus := c.bus
	c.mu.Unlock()
	if !running || bus == nil {
		return "", ErrAbsent
	}
	var out string
	call := bus.Object(busName, objPath).CallWithContext(ctx, zoneFace+method, dbus.FlagNoAutoStart, args...)
	if err := call.Store(&out); err != nil {
		return "", absent(err)
	}
	return out, nil
}

// absent wraps ErrAbsent if the reply means that firewalld is not on the bus.
func absent(err error) error {
	var e dbus.Error
	if errors.Is(err, dbus.ErrClosed) || errors.As(err, &e) &&
		(strings.HasSuffix(e.Name, ".ServiceUnknown") || strings.HasSuffix(e.Name, ".NameHasNoOwner") ||
			strings.HasSuffix(e.Name, ".NoReply")) {
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	return err
}

// Zone returns the zone of an address, "" if it is in none.
func (c *Client) Zone(ctx context.Context, z state.ZoneSource) (string, error) {
	zone, err := c.call(ctx, "getZoneOfSource", z.Source.String())
	if err != nil {
		return "", fmt.Errorf("%s: %w", z, err)
	}
	return zone, nil
}

// Apply adds addresses to their zones.
func (c *Client) Apply(ctx context.Context, want []state.ZoneSource) error {
	for _, z := range want {
		_, err := c.call(ctx, "addSource", z.Zone, z.Source.String())
		if err == nil || refused(err, "ZONE_ALREADY_SET") || refused(err, "ALREADY_ENABLED") {
			continue
		}
		if refused(err, "ZONE_CONFLICT") {
			err = fmt.Errorf("%w: %w", ErrForeign, err)
		}
		return fmt.Errorf("%s: %w", z, err)
	}
	return nil
}

// Remove removes addresses from their zones. Addresses in another zone, or in none, stay.
func (c *Client) Remove(ctx context.Context, gone []state.ZoneSource) error {
	var errs []error
	for _, z := range gone {
		_, err := c.call(ctx, "removeSource", z.Zone, z.Source.String())
		if err == nil || errors.Is(err, ErrAbsent) || refused(err, "UNKNOWN_SOURCE") || refused(err, "NOT_ENABLED") ||
			refused(err, "ZONE_CONFLICT") || refused(err, "INVALID_ZONE") {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %w", z, err))
	}
	return errors.Join(errs...)
}

// refused reports whether firewalld's exception has that reason.
func refused(err error, reason string) bool {
	var e dbus.Error
	return errors.As(err, &e) && strings.Contains(e.Error(), reason)
}
