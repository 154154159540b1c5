// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestFeatures probes the kernel features that the tests of weft's packages require. A missing one is skipped on a
// host, and an error in the test VM.
func TestFeatures(t *testing.T) {
	for name := range nettest.Features() {
		t.Run(name, func(t *testing.T) { nettest.Need(t, name) })
	}
}

func TestSCTP(t *testing.T) {
	for _, family := range []int{syscall.AF_INET, syscall.AF_INET6} {
		fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, syscall.IPPROTO_SCTP)
		if err != nil {
			nettest.Skip(t, fmt.Sprintf("this kernel has no SCTP sockets (family %d): %v", family, err))
		}
		_ = syscall.Close(fd)
	}
}

// TestBridgeFamily: the nftables bridge family with all expressions, some of which minimal kernels lack.
func TestBridgeFamily(t *testing.T) {
	ns := nettest.NS(t, "nft")
	rules := "add table bridge t; add chain bridge t c { type filter hook prerouting priority 0; }; " +
		"add rule bridge t c meta ibrname br0 ether saddr 02:00:00:00:00:01 drop; add rule bridge t c ct state established accept"
	for line := range strings.SplitSeq(rules, "; add ") {
		line = "add " + strings.TrimPrefix(line, "add ")
		if out, err := nettest.Try(ns, "nft", line); err != nil {
			nettest.Skip(t, fmt.Sprintf("this kernel rejects nft %s: %s", line, strings.TrimSpace(out)))
		}
	}
}

// TestPCI: a network interface on a PCI bus can be moved to a namespace.
func TestPCI(t *testing.T) {
	for range 2 { // it is moved back, too
		t.Run("taken", func(t *testing.T) {
			address, link := nettest.PCI(t)
			nettest.Run(t, nil, "ip", "link", "show", link)
			found, err := filepath.Glob("/sys/bus/pci/devices/" + address + "/virtio*/net/" + link)
			if err != nil || len(found) != 1 {
				t.Errorf("%s of %s: %v, %v", link, address, found, err)
			}
		})
	}
}

// TestVFIO: a PCI device can be bound to vfio-pci, as DPDK requires; then it has no link.
func TestVFIO(t *testing.T) {
	address, link := nettest.PCI(t)
	device := "/sys/bus/pci/devices/" + address
	nettest.Run(t, nil, "modprobe", "vfio-pci")
	bind := func(driver string) {
		t.Helper()
		for _, w := range [][2]string{
			{device + "/driver_override", driver}, {device + "/driver/unbind", address}, {"/sys/bus/pci/drivers_probe", address},
		} {
			if err := os.WriteFile(w[0], []byte(w[1]+"\n"), 0o200); err != nil {
				t.Fatal(err)
			}
		}
	}
	bind("vfio-pci")
	t.Cleanup(func() { bind("") })
	if driver, err := os.Readlink(device + "/driver"); err != nil || filepath.Base(driver) != "vfio-pci" {
		t.Errorf("driver %q, %v", driver, err)
	}
	if out, err := nettest.Try(nil, "ip", "link", "show", link); err == nil {
		t.Errorf("the link still exists: %s", out)
	}
}
