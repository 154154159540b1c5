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

// dhcpSubject is the dhcp plugin with its daemon, which is the same program in most vendors' directories, and a server
// of the kit's own on the node's end of each pod's link.
func dhcpSubject() *subject {
	return &subject{
		typ: dhcpType, role: giver, needs: []string{"veth"}, node: startDaemon, furnish: serveLease,
		conf: func(w *world, _ *pod) map[string]any {
			return map[string]any{"type": "kit", "ipam": map[string]any{"type": dhcpType, "daemonSocketPath": w.socket()}}
		},
		exhaust: func(w *world) error {
			for _, end := range w.ends {
				end()
			}
			return os.RemoveAll(w.socket())
		},
	}
}

func (w *world) socket() string { return filepath.Join(w.dir, "dhcp.sock") }

// startDaemon starts the plugin as the daemon that keeps leases, and waits until it answers.
func startDaemon(w *world) error {
	const patience, pause = 5 * time.Second, 10 * time.Millisecond
	var said limited
	cmd := exec.Command(w.prog.path, "daemon", "-socketpath", w.socket())
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &said, &said, "/", lastWords
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin:" + w.kit.home(dhcpType)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.host.Do(cmd.Start); err != nil {
		return fmt.Errorf("dhcp daemon: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	stopped := false
	w.ends = append(w.ends, func() {
		if !stopped {
			stopped = true
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-done
		}
	})
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if c, err := net.Dial("unix", w.socket()); err == nil {
			return c.Close()
		}
		select {
		case err := <-done:
			done <- err
			return fmt.Errorf("dhcp daemon: it ends with %w: %s", err, short(said.String()))
		case <-time.After(pause):
		}
	}
	return errors.New("dhcp daemon: nobody answers on its socket")
}

// home is the directory that a plugin's file really is in.
func (k *kit) home(typ string) string {
	path, err := filepath.EvalSymlinks(filepath.Join(k.cfg.BinDir, typ))
	if err != nil {
		return k.bin
	}
	return filepath.Dir(path)
}

// serveLease gives the pod an interface with a DHCP server behind it.
func serveLease(w *world, p *pod) error {
	var server *server4.Server
	err := w.host.Do(func() error {
		if err := pair(nodeEnd(p), p.ifName, p.ns); err != nil {
			return err
		}
		if err := addAddress(nodeEnd(p), leaseNet(p, 1)+"/24"); err != nil {
			return err
		}
		var err error
		server, err = server4.NewServer(nodeEnd(p), &net.UDPAddr{Port: dhcpv4.ServerPort}, lease(p))
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
	w.ends = append(w.ends, func() {
		_ = server.Close()
		<-done
	})
	return nil
}

func leaseNet(p *pod, host int) string { return fmt.Sprintf("10.27.%d.%d", p.n, host) }

// lease answers every client with the same lease.
func lease(p *pod) server4.Handler {
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
		node := net.ParseIP(leaseNet(p, 1))
		reply, err := dhcpv4.NewReplyFromRequest(m,
			dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(net.ParseIP(leaseNet(p, 2))), dhcpv4.WithServerIP(node),
			dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithRouter(node), dhcpv4.WithLeaseTime(uint32(seconds.Seconds())),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(node)), dhcpv4.WithDNS(node),
		)
		if err == nil {
			_, _ = conn.WriteTo(reply.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort}) // it asks again
		}
	}
}
