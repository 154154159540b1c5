// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp/rpc"
	"github.com/weft-net/weft/internal/model"
)

// Daemon serves a Manager to plugins, the reference plugin among them.
type Daemon struct {
	Manager Config
	// Socket is where plugins call, below Manager.HostPrefix.
	Socket string
	// PIDFile, an absolute path, gets the process id; it may be empty.
	PIDFile string
	// Getenv reads the variables of systemd's socket activation.
	Getenv func(string) string
	// Ready, which may be nil, is called once plugins are answered.
	Ready func()
}

// Run serves until ctx ends. The leases stay for the next start.
func (d Daemon) Run(ctx context.Context) (err error) {
	if d.PIDFile != "" {
		if err := os.WriteFile(d.PIDFile, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return model.Errorf(model.CodeIO, "", "-pidfile: %w", err)
		}
		defer func() { err = errors.Join(err, remove(d.PIDFile)) }()
	}
	k, err := Open(d.Manager)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	listener, err := d.listen()
	if err != nil {
		return err
	}
	if d.Ready != nil {
		d.Ready()
	}
	k.cfg.Log.Info("dhcp daemon serves leases", "socket", listener.Addr().String())
	return k.Serve(ctx, listener)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// listen uses the socket that systemd opened, or opens one. A file of a killed daemon is replaced: the lock on the
// directory of leases proves that no other daemon runs.
func (d Daemon) listen() (net.Listener, error) {
	if l, err := activated(d.Getenv); l != nil || err != nil {
		return l, err
	}
	path := d.Manager.HostPrefix + d.Socket
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, model.Errorf(model.CodeIO, "", "socket: %w", err)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return nil, model.Errorf(model.CodeExists, "stop the other daemon, or choose another -socketpath",
			"socket %s: another daemon answers there", path)
	}
	if err := remove(path); err != nil {
		return nil, model.Errorf(model.CodeIO, "", "socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, model.Errorf(model.CodeIO, "", "socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(model.Errorf(model.CodeIO, "", "socket: %w", err), l.Close())
	}
	return l, nil
}

// activated is the one socket that systemd handed over (sd_listen_fds(3)), nil when it did not.
func activated(getenv func(string) string) (net.Listener, error) {
	const first = 3
	if getenv == nil || getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || getenv("LISTEN_FDS") == "" {
		return nil, nil
	}
	if n := getenv("LISTEN_FDS"); n != "1" {
		return nil, model.Errorf(model.CodeInvalidEnv, "one ListenStream= in the .socket unit",
			"environment: LISTEN_FDS %q is not 1", n)
	}
	syscall.CloseOnExec(first)
	f := os.NewFile(first, "systemd's socket")
	l, err := net.FileListener(f)
	return l, errors.Join(err, f.Close())
}

// Serve answers plugins until ctx ends, then closes the listener.
func (k *Manager) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		callers.Go(func() { serveConn(ctx, conn, k.answer) })
	}
}

// answer serves one call of a plugin.
func (k *Manager) answer(ctx context.Context, method string, args rpc.Args) (any, error) {
	network, prev, err := cni.ParsePlugin(args.StdinData)
	if err != nil && (method != rpc.Release || len(network.Plugins) == 0) {
		return nil, err
	}
	pairs, err := cni.ParseArgs(args.Args)
	if err != nil && method != rpc.Release {
		return nil, err
	}
	req := ipam.Request{
		Conf: network.Plugins[0].Raw, Network: network.Name, ContainerID: args.ContainerID, IfName: args.IfName,
		Netns: args.Netns, Args: pairs,
	}
	switch method {
	case rpc.Allocate:
		result, err := k.Add(ctx, req)
		if err != nil {
			k.cfg.Log.Warn("dhcp client could not acquire a lease", "attachment", req.Key().String(), "err", err)
			return nil, err
		}
		return rpc.NewReply(result), nil
	case rpc.Release:
		return nil, k.Del(ctx, req)
	case rpc.Inspect:
		if prev == nil {
			prev = &model.Result{}
		}
		return nil, k.Check(ctx, req, *prev)
	case rpc.Collect:
		var list struct {
			Valid []model.AttachmentKey `json:"cni.dev/valid-attachments"`
		}
		if err := json.Unmarshal(args.StdinData, &list); err != nil {
			return nil, err
		}
		return nil, k.GC(ctx, req, list.Valid)
	}
	return nil, errUnknown
}
