// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/vm/domain"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// domainXML returns the XML of a VM's domain: the devices of package domain, and what a VM needs to boot.
func domainXML(c qemu.Config) (string, error) {
	devices, err := domain.XML(c.Devices)
	if err != nil {
		return "", fmt.Errorf("VM %s: %w", c.Name, err)
	}
	devices = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(devices), "<devices>"), "</devices>")
	if strings.TrimSpace(devices) == "<devices/>" {
		devices = ""
	}
	kind, cpu := "qemu", "maximum"
	if c.Accel == "kvm" {
		kind, cpu = "kvm", "host-passthrough"
	}
	at := func(name string) string { return text(filepath.Join(c.Dir, name)) }
	return fmt.Sprintf(`<domain type='%s'>
  <name>%s</name>
  <memory unit='MiB'>%d</memory>
  <vcpu>%d</vcpu>
  <os><type arch='x86_64' %s>hvm</type><kernel>%s</kernel><initrd>%s</initrd><cmdline>%s</cmdline></os>
  <features><acpi/></features>
  <cpu mode='%s'/>
  <on_reboot>destroy</on_reboot>
  <devices>
    <serial type='unix'><source mode='bind' path='%s'/><log file='%s' append='on'/><target port='0'/></serial>
    <memballoon model='none'/>
%s%s
  </devices>
</domain>
`, kind, text(domainName(c.Name)), c.Memory, max(c.CPUs, 1), "machine='q35'",
		"/var/lib/libvirt/weft/kernel", "/var/lib/libvirt/weft/initrd",
		text(strings.TrimSpace(qemu.Cmdline+" "+c.Append)), cpu, at(qemu.ConsoleName), text(qemu.ConsoleLog(c.Dir)),
		ports(len(c.Devices)), devices), nil
}

// text escapes a string for XML.
func text(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // writing to a buffer does not fail
	return b.String()
}
