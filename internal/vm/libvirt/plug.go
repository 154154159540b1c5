// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/domain"
)

// spare is how many cards can be plugged while a domain runs.
const spare = 4

// ports are the ports for them: libvirt itself puts each card into one that is free.
func ports(cards int) string {
	out := "    <controller type='pci' index='0' model='pcie-root'/>\n"
	for i := range cards + spare {
		out += fmt.Sprintf("    <controller type='pci' index='%d' model='pcie-root-port'/>\n", i+1)
	}
	return out
}

// Plug gives the domain another card. libvirt opens the link by itself.
func (m *Machine) Plug(ctx context.Context, d model.VMDevice, _, _ []*os.File) error {
	text, err := domain.XML([]model.VMDevice{d})
	if err != nil {
		return err
	}
	text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "<devices>"), "</devices>")
	file := filepath.Join(filepath.Dir(m.socket), "card.xml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	defer func() { _ = os.Remove(file) }()
	_, err = m.Virsh(ctx, "attach-device", m.name, file, "--live")
	return err
}

// Unplug takes a card away, and waits until the guest has let go of it.
func (m *Machine) Unplug(ctx context.Context, d model.VMDevice) error {
	alias := "ua-" + d.Name
	if d.HostPCI != "" {
		alias = "ua-sriov-" + d.Name
	}
	const every = 20 // looks: a guest that has only begun to boot does not hear it
	for i := 0; ; i++ {
		text, err := m.Virsh(ctx, "dumpxml", m.name)
		if err != nil {
			return err
		}
		if !strings.Contains(text, "<alias name='"+alias+"'/>") {
			return nil
		}
		if i%every == 0 {
			if _, err := m.Virsh(ctx, "detach-device-alias", m.name, alias, "--live"); err != nil &&
				!strings.Contains(err.Error(), "already in the process of unplug") {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return model.Faultf(model.CodeTryAgain, "try again when the guest has booted, or take the link down",
				"interface %s: the guest has not let go of it: %w", d.Name, ctx.Err())
		case <-time.After(pause):
		}
	}
}
