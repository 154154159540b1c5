// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weft-net/weft/internal/vm/kubevirt"
)

// usedValues are the unique values of interfaces, with the index of the interface.
type usedValues struct {
	names, macs, pciAddresses map[string]int
	bootOrders                map[uint]string
	acpiIndexes               map[int]int
}

// ReservedMAC is the MAC address of the bridge between a pod and its guest.
const ReservedMAC = "02:00:00:00:00:00"

var pciAddress = regexp.MustCompile(`^[[:xdigit:]]{4}:[[:xdigit:]]{2}:[[:xdigit:]]{2}\.[0-7]$`)

// device checks the properties of an interface's device.
func (c *checker) device(p *field.Path, nic kubevirt.Interface, seen usedValues, i int) {
	models := []string{"e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", kubevirt.VirtIO}
	if nic.Model != "" && !slices.Contains(models, nic.Model) {
		c.invalid(p.Child("model"), strings.Join(models, ", "), "%q is not an interface model", nic.Model)
	}
	c.mac(p.Child("macAddress"), nic, seen, i)
	if b := nic.BootOrder; b != nil {
		owner, twice := seen.bootOrders[*b]
		switch {
		case *b == 0:
			c.invalid(p.Child("bootOrder"), "the first is 1", "0 is not a boot order")
		case twice:
			c.invalid(p.Child("bootOrder"), "each device needs its own boot order",
				"%d is already the boot order of %s", *b, owner)
		default:
			seen.bootOrders[*b] = "interface " + nic.Name
		}
	}
	if a := strings.ToLower(nic.PciAddress); a != "" {
		other, twice := seen.pciAddresses[a]
		switch {
		case !pciAddress.MatchString(a):
			c.invalid(p.Child("pciAddress"), "for example 0000:81:01.1", "%q is not a PCI address", nic.PciAddress)
		case twice:
			c.invalid(p.Child("pciAddress"), "", "%s is already the address of interface %q", nic.PciAddress,
				c.nics()[other].Name)
		}
		seen.pciAddresses[a] = i
	}
	if n := nic.ACPIIndex; n != 0 {
		const most = 16*1024 - 1
		other, twice := seen.acpiIndexes[n]
		switch {
		case n < 0 || n > most:
			c.invalid(p.Child("acpiIndex"), "1 to 16383", "%d is not an ACPI index", n)
		case twice:
			c.invalid(p.Child("acpiIndex"), "", "%d is already the ACPI index of interface %q", n, c.nics()[other].Name)
		}
		seen.acpiIndexes[n] = i
	}
}

// mac checks the MAC address of a guest's interface.
func (c *checker) mac(p *field.Path, nic kubevirt.Interface, seen usedValues, i int) {
	if nic.MacAddress == "" {
		return
	}
	hw, err := net.ParseMAC(nic.MacAddress)
	if err != nil || len(hw) != 6 {
		c.invalid(p, "six bytes, for example 02:00:00:00:00:01", "%q is not a MAC address", nic.MacAddress)
		return
	}
	if hw[0]&1 != 0 || slices.Max(hw) == 0 {
		c.invalid(p, "the lowest bit of the first byte must be 0", "%s is not a unicast address",
			nic.MacAddress)
		return
	}
	if hw.String() == ReservedMAC && nic.Masquerade != nil {
		c.invalid(p, "choose another one", "%s is the address of the bridge in the pod", nic.MacAddress)
	}
	if other, twice := seen.macs[hw.String()]; twice {
		c.invalid(p, "choose another one", "%s is already the address of interface %q", nic.MacAddress, c.nics()[other].Name)
	}
	seen.macs[hw.String()] = i
}

// diskBootOrders returns the disks by their boot order.
func (c *checker) diskBootOrders() map[uint]string {
	out := map[uint]string{}
	for _, d := range c.spec.Domain.Devices.Disks {
		if d.BootOrder != nil {
			out[*d.BootOrder] = "disk " + d.Name
		}
	}
	return out
}

// subnet checks the subnet between pod and guest.
func (c *checker) subnet(p *field.Path, cidr string, v6 bool) {
	if cidr == "" {
		return
	}
	example := "10.0.2.0/24"
	if v6 {
		example = "fd10:0:2::/120"
	}
	n, err := netip.ParsePrefix(cidr)
	switch {
	case err != nil || n.Addr().Is6() != v6 || n.Addr().Is4In6():
		c.invalid(p, "for example "+example, "%q is not a subnet of that family", cidr)
	case n.Addr().BitLen()-n.Bits() < 2:
		c.invalid(p, "for example "+example, "%s is too small for the addresses of the gateway and the guest", cidr)
	case n.Addr().IsMulticast() || n.Addr().IsLoopback() || n.Addr().IsUnspecified() || n.Addr().IsLinkLocalUnicast():
		c.invalid(p, "for example "+example, "%s has no addresses for guests", cidr)
	}
}
