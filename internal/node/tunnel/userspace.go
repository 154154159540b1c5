// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/device"
	wgtun "golang.zx2c4.com/wireguard/tun"

	"github.com/weft-net/weft/internal/kernel/wireguard"
	"github.com/weft-net/weft/internal/node/tunnel/tun"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// userspace is WireGuard in this process, on a TUN device.
type userspace struct {
	want   mesh.Tunnel
	dev    *device.Device
	have   wireguard.Config
	closed atomic.Bool
	over   chan struct{}

	sessions *sessions
}

var errDied = errors.New("wireguard ended")

func (r *Runner) startUserspace(w mesh.Tunnel, dead *atomic.Bool) (tunnel, error) {
	u := &userspace{want: w, over: make(chan struct{})}
	err := r.cfg.NS.Do(func() error {
		fd, err := tun.Attach(w.Link)
		if err != nil {
			return err
		}
		t, _, err := wgtun.CreateUnmonitoredTUNFromFD(fd)
		if err != nil {
			_ = unix.Close(fd)
			return err
		}
		u.dev = device.NewDevice(ipDevice{t, w.MTU}, newSockets(r.cfg.NS, r.cfg.Now),
			logger(r.cfg.Log.With("interface", w.Link)))
		u.sessions = newSessions(u.dev, r.cfg.After)
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.watch(w.Link, dead, func() error {
		defer close(u.over)
		<-u.dev.Wait()
		if u.closed.Load() {
			return nil
		}
		return errDied
	})
	return u, nil
}

// set applies changes. Sessions with unchanged peers continue.
func (u *userspace) set(_ context.Context, w mesh.Tunnel, changed bool) error {
	if !changed {
		return nil
	}
	if w.Options[mesh.OptionUserSpace] == "" || w.MTU != u.want.MTU {
		return errRecreate
	}
	c, err := wireguardConfig(w)
	if err != nil {
		return err
	}
	if err := u.dev.IpcSet(words(c, u.have)); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	if err := u.dev.Up(); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	own, err := publicKey(c.Private)
	if err != nil {
		return err
	}
	u.sessions.begin(own, u.fresh(c.Peers))
	u.have, u.want = c, w
	return nil
}

// fresh returns the keys of the peers that the device did not have.
func (u *userspace) fresh(peers []wireguard.Peer) (out []wireguard.PublicKey) {
	known := make(map[wireguard.PublicKey]bool, len(u.have.Peers))
	for _, p := range u.have.Peers {
		known[p.Key] = true
	}
	for _, p := range peers {
		if !known[p.Key] {
			out = append(out, p.Key)
		}
	}
	return out
}

func (u *userspace) close() {
	u.closed.Store(true)
	u.sessions.close()
	u.dev.Close()
	<-u.over
}

// words returns a configuration in WireGuard's text protocol, as a difference from have.
func words(c, have wireguard.Config) string {
	var b strings.Builder
	set := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	if c.Private != have.Private {
		set("private_key", hex.EncodeToString(c.Private[:]))
	}
	if c.Port != have.Port {
		set("listen_port", c.Port)
	}
	if c.Shared != have.Shared || c.Keepalive != have.Keepalive {
		have.Peers = append([]wireguard.Peer(nil), have.Peers...)
		for i := range have.Peers {
			have.Peers[i].Allowed = nil // all must be sent
		}
	}
	changed, gone := changedPeers(c.Peers, have.Peers)
	for _, key := range gone {
		set("public_key", hex.EncodeToString(key[:]))
		set("remove", true)
	}
	for _, p := range changed {
		set("public_key", hex.EncodeToString(p.Key[:]))
		set("preshared_key", hex.EncodeToString(c.Shared[:]))
		set("endpoint", p.Endpoint)
		set("persistent_keepalive_interval", c.Keepalive)
		set("replace_allowed_ips", true)
		for _, a := range p.Allowed {
			set("allowed_ip", a)
		}
	}
	return b.String()
}

// ipDevice is a device with a known MTU: reading it would require being in the device's namespace.
type ipDevice struct {
	wgtun.Device
	mtu int
}

func (d ipDevice) MTU() (int, error) { return d.mtu, nil }

// logger logs WireGuard's errors. They contain no secrets, and only parts of public keys.
func logger(log *slog.Logger) *device.Logger {
	return &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf:   func(format string, args ...any) { log.Warn("wireguard failed", "err", fmt.Sprintf(format, args...)) },
	}
}
