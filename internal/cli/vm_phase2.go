// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/guest/handover"
	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/sockets"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/domain"
	"github.com/weft-net/weft/internal/vm/phase1"
)

func newVMPhase2Cmd(env Env) *cobra.Command {
	in := vmInput{env: env}
	var path, dir, socket string
	cmd := &cobra.Command{
		Use:   "phase2 FILE",
		Short: "Give a machine's hypervisor its devices, and weft-guest its sockets",
		Long: `Prints the devices of the machine in FILE ("-" is stdin) in libvirt's words, as weft vm phase1 has made them in the pod, and
hands to weft-guest what it says to the guest and the open sockets for it, as often as weft-guest is started, until this
command is ended.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, err := in.machine(args[0])
			if err != nil {
				return err
			}
			if path == "" {
				return usageError{model.Faultf(model.CodeInvalidConf, "for example /run/netns/pod1", "--netns is missing")}
			}
			record, found, err := phase1.Config{Dir: dir}.Read(machine.VM.Key())
			if err != nil {
				return err
			}
			if !found {
				return model.Faultf(model.CodeInvalidEnv, "weft vm phase1 makes it", "nothing is known of machine %s in %s", machine.VM.Key(), dir)
			}
			if socket == "" {
				socket = filepath.Join(dir, strings.ReplaceAll(machine.VM.Key(), "/", ",")+".sock")
			}
			return vmPhase2(cmd.Context(), env.Stdout, env.Stderr, record, path, socket, machine.VM.Owner)
		},
	}
	in.machineFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&path, "netns", "", "`PATH` of the pod's network namespace")
	f.StringVar(&dir, "state-dir", "/run/weft/vm", "`DIR` where weft vm phase1 remembers what it made")
	f.StringVar(&socket, "socket", "", "`PATH` of the unix socket for weft-guest (default: MACHINE.sock in the state directory)")
	return cmd
}

// handoverTime bounds one handing over: who asks reads at once.
const handoverTime = 5 * time.Second

// vmPhase2 opens the sockets and gives them away until the context ends.
func vmPhase2(ctx context.Context, stdout, stderr io.Writer, record phase1.Record, path, socket string, owner uint32) error {
	var devices []model.VMDevice
	for _, n := range record.Networks {
		if n.State != phase1.Finished {
			return model.Faultf(model.CodeInvalidEnv, "weft vm phase1 goes on with it", "machine %s: network %s is %s", record.Machine, n.Interface.Name, n.State)
		}
		devices = append(devices, n.Device)
	}
	wires, err := vmWires(record, path)
	defer func() {
		for _, w := range wires {
			_ = w.Sockets.Close()
		}
	}()
	if err != nil {
		return err
	}
	text, err := domain.XML(devices)
	if err != nil {
		return err
	}
	_ = os.Remove(socket) // of a call that was killed
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if err := errors.Join(os.Chmod(socket, 0o600), os.Chown(socket, int(owner), int(owner))); err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		err = conn.SetDeadline(time.Now().Add(handoverTime))
		if err == nil {
			err = handover.Give(conn.(*net.UnixConn), wires)
		}
		if err = errors.Join(err, conn.Close()); err != nil { // it was killed meanwhile; the next one is served
			_, _ = fmt.Fprintln(stderr, "weft: weft-guest has not got its wires:", err)
		}
	}
}

// vmWires opens the sockets of all guests' wires of a record.
func vmWires(record phase1.Record, path string) (wires []serve.Wire, err error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidNetns, "", "--netns %s: %w", path, err)
	}
	defer func() { _ = ns.Close() }()
	for _, n := range record.Networks {
		if n.Guest == nil {
			continue
		}
		s, err := sockets.Open(ns, *n.Guest)
		if err != nil {
			return wires, model.Faultf(model.CodeInvalidEnv, "the pod has changed, or another server runs in it", "machine %s: network %s: %w", record.Machine, n.Interface.Name, err)
		}
		wires = append(wires, serve.Wire{Guest: *n.Guest, Sockets: s})
	}
	return wires, nil
}
