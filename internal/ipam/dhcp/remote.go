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

// hintDaemon is the hint if there is no daemon.
const hintDaemon = "start one: weft dhcp daemon, or the reference plugin's: dhcp daemon"

// Remote calls a daemon for leases: weft's, or the reference plugin's.
type Remote struct {
	log *slog.Logger
}

// New returns an allocator. log may be nil.
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

// Capabilities returns NeedsLink: messages go through the attachment's interface.
func (*Remote) Capabilities() ipam.Capabilities { return ipam.Capabilities{NeedsLink: true} }

// Validate rejects a configuration that can never allocate an address.
func (*Remote) Validate(conf json.RawMessage) error {
	_, err := Read(conf, nil)
	return err
}

// Add gets a lease.
func (r *Remote) Add(ctx context.Context, req ipam.Request) (model.Result, error) {
	set, err := Read(req.Conf, req.Args)
	if err != nil {
		return model.Result{}, err
	}
	return r.call(ctx, set.Socket, rpc.Allocate, req, req.Conf)
}

// Del releases the lease. A daemon that is not running is no error, so that the container can be deleted: after its
// restart it releases leases of deleted containers itself.
func (r *Remote) Del(ctx context.Context, req ipam.Request) error {
	_, err := r.call(ctx, socketOf(req.Conf), rpc.Release, req, req.Conf)
	if err != nil && !errors.Is(err, rpc.ErrDaemon) {
		r.log.Warn("dhcp daemon did not release the lease", "err", err)
		return nil
	}
	return err
}

// Check reports whether the daemon has the leases of prev. The reference daemon can only allocate again, which acquires
// a new lease if there is none.
func (r *Remote) Check(ctx context.Context, req ipam.Request, prev model.Result) error {
	set, err := Read(req.Conf, req.Args)
	if err != nil {
		return err
	}
	stdin, err := cni.WithPrev(model.PluginConf{Type: Type, Raw: req.Conf}, version(req.Conf), &prev)
	if err != nil {
		return err
	}
	_, err = r.call(ctx, set.Socket, rpc.Inspect, req, stdin)
	if errors.Is(err, rpc.ErrDaemon) {
		return model.Errorf(model.CodeDiffers, "", "%w", errors.Unwrap(err)) // the daemon has said what to do
	}
	if !errors.Is(err, rpc.ErrNoMethod) {
		return err
	}
	have, err := r.Add(ctx, req)
	if err != nil {
		return err
	}
	for _, ip := range have.IPs {
		found := false
		for _, p := range prev.IPs {
			found = found || p.Address == ip.Address
		}
		if !found {
			return model.Errorf(model.CodeDiffers, "DEL it, then ADD it again",
				"dhcp: prevResult does not have the leased address %s", ip.Address)
		}
	}
	return nil
}

// Status reports whether there is a daemon.
func (r *Remote) Status(ctx context.Context, req ipam.Request) error {
	set, err := Read(req.Conf, nil)
	if err != nil {
		return err
	}
	c, err := rpc.Dial(ctx, set.Socket)
	if err != nil {
		return model.Errorf(model.CodeNotAvailable, hintDaemon, "dhcp: no daemon at ipam.daemonSocketPath %q: %w",
			set.Socket, err)
	}
	return c.Close()
}

// GC releases the leases of no valid attachment. The reference daemon cannot do that.
func (r *Remote) GC(ctx context.Context, req ipam.Request, valid []model.AttachmentKey) error {
	stdin, err := cni.WithValid(model.PluginConf{Type: Type, Raw: req.Conf}, version(req.Conf), valid)
	if err != nil {
		return err
	}
	_, err = r.call(ctx, socketOf(req.Conf), rpc.Collect, req, stdin)
	if errors.Is(err, rpc.ErrNoMethod) {
		r.log.Warn("the reference daemon cannot collect leases", "err", err)
		return nil
	}
	return err
}

// call calls the daemon once.
func (r *Remote) call(
	ctx context.Context,
	socket, method string,
	req ipam.Request,
	stdin []byte,
) (model.Result, error) {
	none := model.Result{}
	c, err := rpc.Dial(ctx, socket)
	if err != nil {
		return none, model.Errorf(model.CodeTryAgain, hintDaemon,
			"dhcp: no daemon at ipam.daemonSocketPath %q: %w", socket, err)
	}
	defer func() { _ = c.Close() }()
	args := rpc.Args{ContainerID: req.ContainerID, IfName: req.IfName, Args: join(req.Args), StdinData: stdin}
	if req.Netns != "" { // the daemon may run in another directory
		if args.Netns, err = filepath.Abs(req.Netns); err != nil {
			return none, err
		}
	}
	result, err := c.Call(ctx, method, args)
	if err != nil {
		return none, model.Errorf(model.CodeTryAgain, "", "%w", err)
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

// socketOf decodes only the daemon's socket, because DEL and GC must work with an invalid configuration.
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
