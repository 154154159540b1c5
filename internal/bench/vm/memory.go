// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/bench/part"
	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// testMemory is what weft-guest has in memory once it has answered a guest, in MiB.
const testMemory = "weft-guest"

// memory measures weft-guest.
func (b *bench) memory(ctx context.Context) error {
	d, _ := find(masquerade)
	w := &world{design: d, dir: filepath.Join(b.dir, "memory")}
	defer w.close()
	if err := w.lay(); err != nil {
		return err
	}
	id, err := boot.ID()
	if err != nil {
		return err
	}
	local := host.NewLocal(phase1.Config{Dir: w.dir, Boot: id, Log: slog.New(slog.DiscardHandler)})
	defer func() { _ = local.Close() }()
	pod := host.Pod{NS: w.pod}
	r, err := local.Start(ctx, pod, input(d))
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- local.Serve(serving, pod, r.Machine) }()
	defer func() {
		stop()
		<-done
	}()
	p, err := part.Start(w.pod, -1, filepath.Join(filepath.Dir(b.cfg.Self), "weft-guest"))
	if err != nil {
		return err
	}
	defer p.Stop()
	tap, err := w.open(r.Networks[0])
	if err != nil {
		return err
	}
	defer func() { _ = tap.Close() }()
	if err := hasLease(ctx, int(tap.Fd()), r.Networks[0].Device.MAC); err != nil {
		return fmt.Errorf("weft-guest: %w: %s", err, p.Stderr)
	}
	kib, err := resident(p.PID())
	if err != nil {
		return err
	}
	k := key{masquerade, testMemory}
	b.values[k] = append(b.values[k], kib/1024)
	return nil
}

// hasLease asks for an address until one is offered.
func hasLease(ctx context.Context, tap int, mac string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	hw, err := parseMAC(mac)
	if err != nil {
		return err
	}
	discover, err := dhcpv4.New(dhcpv4.WithHwAddr(hw), dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover))
	if err != nil {
		return err
	}
	everybody := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	ask := datagram(everybody, hw, netip.AddrPortFrom(netip.IPv4Unspecified(), 68),
		netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), 67), discover.ToBytes())
	ask = append(make([]byte, vnetHeader), ask...)
	buffer := make([]byte, largest)
	for ctx.Err() == nil {
		if _, err := unix.Write(tap, ask); err != nil && !errors.Is(err, unix.EIO) {
			return err
		}
		fds := []unix.PollFd{{Fd: int32(tap), Events: unix.POLLIN}}
		const wait = 100 // milliseconds
		for n, _ := unix.Poll(fds, wait); n > 0; n, _ = unix.Poll(fds, wait) {
			n, err := unix.Read(tap, buffer)
			if err != nil {
				return err
			}
			const payload = vnetHeader + headers
			if n < payload {
				continue
			}
			if offer, err := dhcpv4.FromBytes(buffer[payload:n]); err == nil && offer.MessageType() == dhcpv4.MessageTypeOffer {
				return nil
			}
		}
	}
	return errors.New("it offers no address")
}

// resident is what a process has in memory, in KiB.
func resident(pid int) (kib float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			return kib, nil
		}
	}
	return 0, errors.New("its memory is not told")
}
