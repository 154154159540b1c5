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

	"github.com/weft-net/weft/internal/bench/subprocess"
	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// testRSS is the resident memory of weft-guest after it has served a guest, in MiB.
const testRSS = "weft-guest"

// guestRSS measures the memory of weft-guest.
func (b *bench) guestRSS(ctx context.Context) error {
	d, _ := findDesign(masquerade)
	w := &world{design: d, dir: filepath.Join(b.dir, "memory")}
	defer w.close()
	if err := w.addPods(); err != nil {
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
	go func() { done <- local.Serve(serving, pod, r.VM) }()
	defer func() {
		stop()
		<-done
	}()
	p, err := subprocess.Start(w.pod, -1, filepath.Join(filepath.Dir(b.cfg.Self), "weft-guest"))
	if err != nil {
		return err
	}
	defer p.Stop()
	tap, err := w.openTap(r.Networks[0])
	if err != nil {
		return err
	}
	defer func() { _ = tap.Close() }()
	if err := hasLease(ctx, int(tap.Fd()), r.Networks[0].Device.MAC); err != nil {
		return fmt.Errorf("weft-guest: %w: %s", err, p.Stderr)
	}
	kib, err := residentKB(p.PID())
	if err != nil {
		return err
	}
	k := key{masquerade, testRSS}
	b.values[k] = append(b.values[k], kib/1024)
	return nil
}

// hasLease sends DHCP discovers until an offer arrives, which shows that the server holds a lease for the MAC address.
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
	broadcast := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	request := datagram(broadcast, hw, netip.AddrPortFrom(netip.IPv4Unspecified(), 68),
		netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), 67), discover.ToBytes())
	request = append(make([]byte, vnetHeader), request...)
	buffer := make([]byte, maxFrame)
	for ctx.Err() == nil {
		if _, err := unix.Write(tap, request); err != nil && !errors.Is(err, unix.EIO) {
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
	return errors.New("no DHCP offer")
}

// residentKB returns the resident memory of a process, in KiB.
func residentKB(pid int) (kib float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			return kib, nil
		}
	}
	return 0, fmt.Errorf("no VmRSS in the status of process %d", pid)
}
