// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/domain"
	"github.com/weft-net/weft/internal/vm/macvtap"
)

// sparePorts is the number of network devices that can be hot-plugged.
const sparePorts = 4

// ports returns the PCI Express ports; libvirt chooses a free one for each device.
func ports(nics int) string {
	out := "    <controller type='pci' index='0' model='pcie-root'/>\n"
	for i := range nics + sparePorts {
		out += fmt.Sprintf("    <controller type='pci' index='%d' model='pcie-root-port'/>\n", i+1)
	}
	return out
}

// Plug hot-plugs a network device. libvirt opens the link.
func (m *Domain) Plug(ctx context.Context, d model.VMDevice, _, _ []*os.File) error {
	text, err := domain.XML([]model.VMDevice{d})
	if err != nil {
		return err
	}
	text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "<devices>"), "</devices>")
	file := filepath.Join(filepath.Dir(m.socket), "interface.xml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	defer func() { _ = os.Remove(file) }()
	if err := m.makeDevice(d); err != nil {
		return err
	}
	_, err = m.Virsh(ctx, "attach-device", m.name, file, "--live")
	return err
}

// Unplug unplugs a network device, and waits until the guest has released it.
func (m *Domain) Unplug(ctx context.Context, d model.VMDevice) error {
	alias := "ua-" + d.Name
	if d.HostPCI != "" {
		alias = "ua-sriov-" + d.Name
	}
	const retryPolls = 20 // a guest that is booting ignores the request
	for i := 0; ; i++ {
		text, err := m.Virsh(ctx, "dumpxml", m.name)
		if err != nil {
			return err
		}
		if !strings.Contains(text, "<alias name='"+alias+"'/>") {
			return nil
		}
		if i%retryPolls == 0 {
			if _, err := m.Virsh(ctx, "detach-device-alias", m.name, alias, "--live"); err != nil &&
				!strings.Contains(err.Error(), "already in the process of unplug") {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return model.Errorf(model.CodeTryAgain, "try again when the guest has booted, or set the link down",
				"interface %s: the guest has not released it: %w", d.Name, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// makeDevice makes the device node of a macvtap in the daemon's /dev; nothing for another device.
func (m *Domain) makeDevice(d model.VMDevice) error {
	if d.HostPCI != "" {
		return nil
	}
	return m.ns.Do(func() error {
		tap, ok := macvtap.Find(d.Target)
		if !ok {
			return nil
		}
		node := filepath.Join("/proc", strconv.Itoa(m.daemon.Process.Pid), "root/dev", tap.Name)
		err := unix.Mknod(node, unix.S_IFCHR|0o600, int(tap.Number))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("interface %s: create the device node of %s: %w", d.Name, d.Target, err)
		}
		return nil
	})
}
