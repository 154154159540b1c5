// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
)

const dhcpType = "dhcp"

// dhcpSubject is the dhcp plugin with its daemon, which is the same program in most vendors' directories, and a DHCP
// server of the kit at the host interface of each pod.
func dhcpSubject() *subject {
	return &subject{
		typ: dhcpType, role: ipamPlugin, needs: []string{"veth"}, prepareNode: startDHCPDaemon, preparePod: addDHCPServer,
		conf: func(w *world, _ *pod) map[string]any {
			return map[string]any{"type": "kit", "ipam": map[string]any{"type": dhcpType, "daemonSocketPath": w.socket()}}
		},
		exhaust: func(w *world) error {
			for _, end := range w.cleanups {
				end()
			}
			return os.RemoveAll(w.socket())
		},
	}
}

func (w *world) socket() string { return filepath.Join(w.dir, "dhcp.sock") }

// startDHCPDaemon starts the plugin as daemon and waits until it accepts connections.
func startDHCPDaemon(w *world) error {
	const timeout, pause = 5 * time.Second, 10 * time.Millisecond
	var log limitedBuffer
	cmd := exec.Command(w.prog.path, "daemon", "-socketpath", w.socket())
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &log, &log, "/", waitDelay
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin:" + w.kit.realDir(dhcpType)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.host.Do(cmd.Start); err != nil {
		return fmt.Errorf("dhcp daemon: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	stopped := false
	w.cleanups = append(w.cleanups, func() {
		if !stopped {
			stopped = true
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-done
		}
	})
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if c, err := net.Dial("unix", w.socket()); err == nil {
			return c.Close()
		}
		select {
		case err := <-done:
			done <- err
			return fmt.Errorf("dhcp daemon: exits with %w: %s", err, short(log.String()))
		case <-time.After(pause):
		}
	}
	return errors.New("dhcp daemon: no connection to its socket")
}

// realDir returns the directory of a plugin's file, with symbolic links resolved.
func (k *kit) realDir(typ string) string {
	path, err := filepath.EvalSymlinks(filepath.Join(k.cfg.BinDir, typ))
	if err != nil {
		return k.bin
	}
	return filepath.Dir(path)
}

// addDHCPServer creates the pod's interface with a DHCP server at the other end.
func addDHCPServer(w *world, p *pod) error {
	var server *server4.Server
	err := w.host.Do(func() error {
		if err := addVeth(hostLink(p), p.ifName, p.ns); err != nil {
			return err
		}
		if err := addAddress(hostLink(p), leaseAddr(p, 1)+"/24"); err != nil {
			return err
		}
		var err error
		server, err = server4.NewServer(hostLink(p), &net.UDPAddr{Port: dhcpv4.ServerPort}, leaseHandler(p))
		return err
	})
	if err != nil {
		return fmt.Errorf("DHCP server: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve() // until it is closed
	}()
	w.cleanups = append(w.cleanups, func() {
		_ = server.Close()
		<-done
	})
	return nil
}

func leaseAddr(p *pod, host int) string { return fmt.Sprintf("10.27.%d.%d", p.n, host) }

// leaseHandler offers the same lease to every client.
func leaseHandler(p *pod) server4.Handler {
	const seconds = time.Hour
	return func(conn net.PacketConn, _ net.Addr, m *dhcpv4.DHCPv4) {
		kind := dhcpv4.MessageTypeAck
		switch m.MessageType() {
		case dhcpv4.MessageTypeDiscover:
			kind = dhcpv4.MessageTypeOffer
		case dhcpv4.MessageTypeRequest:
		default:
			return
		}
		node := net.ParseIP(leaseAddr(p, 1))
		reply, err := dhcpv4.NewReplyFromRequest(m,
			dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(net.ParseIP(leaseAddr(p, 2))), dhcpv4.WithServerIP(node),
			dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithRouter(node), dhcpv4.WithLeaseTime(uint32(seconds.Seconds())),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(node)), dhcpv4.WithDNS(node),
		)
		if err == nil {
			// Errors are ignored: the client retransmits.
			_, _ = conn.WriteTo(reply.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort})
		}
	}
}
