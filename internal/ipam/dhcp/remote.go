// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp/rpc"
	"github.com/weft-net/weft/internal/model"
)

// hintDaemon is the way out where there is no daemon.
const hintDaemon = "start one: weft dhcp daemon, or the reference plugin's: dhcp daemon"

// Remote asks a daemon for addresses: weft's, or the reference plugin's.
type Remote struct {
	log *slog.Logger
}

// New makes an allocator. Its log may be nil.
func New(log *slog.Logger) *Remote {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Remote{log: log}
}

// Type is "dhcp".
func (*Remote) Type() string { return Type }

// Keys are the options.
func (*Remote) Keys() []string { return Keys() }

// Capabilities tells that messages go through the attachment's interface.
func (*Remote) Capabilities() ipam.Capabilities { return ipam.Capabilities{NeedsLink: true} }

// Validate refuses a configuration that can never give an address.
func (*Remote) Validate(conf json.RawMessage) error {
	_, err := Read(conf, nil)
	return err
}

// Add gets a lease.
func (r *Remote) Add(ctx context.Context, ask ipam.Ask) (model.Result, error) {
	set, err := Read(ask.Conf, ask.Args)
	if err != nil {
		return model.Result{}, err
	}
	return r.call(ctx, set.Socket, rpc.Allocate, ask, ask.Conf)
}

// Del gives the lease back. A daemon that is away gives back by itself what is gone when it comes back; that is no
// reason to keep a container from being deleted.
func (r *Remote) Del(ctx context.Context, ask ipam.Ask) error {
	_, err := r.call(ctx, socketOf(ask.Conf), rpc.Release, ask, ask.Conf)
	if err != nil && !errors.Is(err, rpc.ErrDaemon) {
		r.log.Warn("the lease is not released", "err", err)
		return nil
	}
	return err
}

// Check tells whether the daemon keeps the leases that prev says. The reference daemon can only be asked for the lease
// again, which gets a new one where there is none.
func (r *Remote) Check(ctx context.Context, ask ipam.Ask, prev model.Result) error {
	set, err := Read(ask.Conf, ask.Args)
	if err != nil {
		return err
	}
	stdin, err := cni.WithPrev(model.PluginConf{Type: Type, Raw: ask.Conf}, version(ask.Conf), &prev)
	if err != nil {
		return err
	}
	_, err = r.call(ctx, set.Socket, rpc.Inspect, ask, stdin)
	if errors.Is(err, rpc.ErrDaemon) {
		return model.Faultf(model.CodeDiffers, "", "%w", errors.Unwrap(err)) // the daemon has said what to do
	}
	if !errors.Is(err, rpc.ErrNoMethod) {
		return err
	}
	have, err := r.Add(ctx, ask)
	if err != nil {
		return err
	}
	for _, ip := range have.IPs {
		found := false
		for _, p := range prev.IPs {
			found = found || p.Address == ip.Address
		}
		if !found {
			return model.Faultf(model.CodeDiffers, "DEL it, then ADD it again",
				"dhcp: prevResult does not have the leased address %s", ip.Address)
		}
	}
	return nil
}

// Status tells whether there is a daemon.
func (r *Remote) Status(ctx context.Context, ask ipam.Ask) error {
	set, err := Read(ask.Conf, nil)
	if err != nil {
		return err
	}
	c, err := rpc.Dial(ctx, set.Socket)
	if err != nil {
		return model.Faultf(model.CodeNotAvailable, hintDaemon, "dhcp: no daemon at ipam.daemonSocketPath %q: %w",
			set.Socket, err)
	}
	return c.Close()
}

// GC has the leases released that no valid attachment has. The reference daemon cannot do that.
func (r *Remote) GC(ctx context.Context, ask ipam.Ask, valid []model.AttachmentKey) error {
	stdin, err := cni.WithValid(model.PluginConf{Type: Type, Raw: ask.Conf}, version(ask.Conf), valid)
	if err != nil {
		return err
	}
	_, err = r.call(ctx, socketOf(ask.Conf), rpc.Collect, ask, stdin)
	if errors.Is(err, rpc.ErrNoMethod) {
		r.log.Warn("the reference daemon cannot collect leases", "err", err)
		return nil
	}
	return err
}

// call does one call of the daemon.
func (r *Remote) call(ctx context.Context, socket, method string, ask ipam.Ask, stdin []byte) (model.Result, error) {
	none := model.Result{}
	c, err := rpc.Dial(ctx, socket)
	if err != nil {
		return none, model.Faultf(model.CodeTryAgain, hintDaemon,
			"dhcp: no daemon at ipam.daemonSocketPath %q: %w", socket, err)
	}
	defer func() { _ = c.Close() }()
	args := rpc.Args{ContainerID: ask.ContainerID, IfName: ask.IfName, Args: join(ask.Args), StdinData: stdin}
	if ask.Netns != "" { // the daemon may run in another directory
		if args.Netns, err = filepath.Abs(ask.Netns); err != nil {
			return none, err
		}
	}
	result, err := c.Call(ctx, method, args)
	if err != nil {
		return none, model.Faultf(model.CodeTryAgain, "", "%w", err)
	}
	return result, nil
}

func join(args [][2]string) string {
	pairs := make([]string, 0, len(args))
	for _, kv := range args {
		pairs = append(pairs, kv[0]+"="+kv[1])
	}
	return strings.Join(pairs, ";")
}

// socketOf reads nothing but the daemon's socket, because DEL and GC must work with a configuration that is broken.
func socketOf(raw json.RawMessage) string {
	var c struct {
		IPAM struct {
			DaemonSocketPath string `json:"daemonSocketPath"`
		} `json:"ipam"`
	}
	if json.Unmarshal(raw, &c) != nil || c.IPAM.DaemonSocketPath == "" {
		return rpc.DefaultSocket
	}
	return c.IPAM.DaemonSocketPath
}

func version(raw json.RawMessage) string {
	var c struct {
		CNIVersion string `json:"cniVersion"`
	}
	_ = json.Unmarshal(raw, &c) // whatever could be read
	return c.CNIVersion
}
