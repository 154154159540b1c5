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

// taken is what interfaces have, by value, with the index of the one that has it.
type taken struct {
	names, macs, addresses map[string]int
	boots                  map[uint]string
	indexes                map[int]int
}

// ReservedMAC is the address of the bridge between a pod and its guest.
const ReservedMAC = "02:00:00:00:00:00"

var pciAddress = regexp.MustCompile(`^[[:xdigit:]]{4}:[[:xdigit:]]{2}:[[:xdigit:]]{2}\.[0-7]$`)

// device checks what the guest sees of an interface.
func (c *checker) device(p *field.Path, nic kubevirt.Interface, seen taken, i int) {
	models := []string{"e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", kubevirt.VirtIO}
	if nic.Model != "" && !slices.Contains(models, nic.Model) {
		c.wrong(p.Child("model"), strings.Join(models, ", "), "%q is no model of an interface", nic.Model)
	}
	c.mac(p.Child("macAddress"), nic, seen, i)
	if b := nic.BootOrder; b != nil {
		who, twice := seen.boots[*b]
		switch {
		case *b == 0:
			c.wrong(p.Child("bootOrder"), "1 is the first", "0 is no place in the order")
		case twice:
			c.wrong(p.Child("bootOrder"), "each device needs a place of its own", "%d is the place of %s already", *b, who)
		default:
			seen.boots[*b] = "interface " + nic.Name
		}
	}
	if a := strings.ToLower(nic.PciAddress); a != "" {
		other, twice := seen.addresses[a]
		switch {
		case !pciAddress.MatchString(a):
			c.wrong(p.Child("pciAddress"), "for example 0000:81:01.1", "%q is no address on the PCI bus", nic.PciAddress)
		case twice:
			c.wrong(p.Child("pciAddress"), "", "%s is the address of interface %q already", nic.PciAddress, c.nics()[other].Name)
		}
		seen.addresses[a] = i
	}
	if n := nic.ACPIIndex; n != 0 {
		const most = 16*1024 - 1
		other, twice := seen.indexes[n]
		switch {
		case n < 0 || n > most:
			c.wrong(p.Child("acpiIndex"), "1 to 16383", "%d is no index", n)
		case twice:
			c.wrong(p.Child("acpiIndex"), "", "%d is the index of interface %q already", n, c.nics()[other].Name)
		}
		seen.indexes[n] = i
	}
}

// mac checks an address of the guest.
func (c *checker) mac(p *field.Path, nic kubevirt.Interface, seen taken, i int) {
	if nic.MacAddress == "" {
		return
	}
	hw, err := net.ParseMAC(nic.MacAddress)
	if err != nil || len(hw) != 6 {
		c.wrong(p, "six bytes, for example 02:00:00:00:00:01", "%q is no MAC address", nic.MacAddress)
		return
	}
	if hw[0]&1 != 0 || slices.Max(hw) == 0 {
		c.wrong(p, "the lowest bit of the first byte is 0 in an interface's address", "%s is not a unicast address",
			nic.MacAddress)
		return
	}
	if hw.String() == ReservedMAC && nic.Masquerade != nil {
		c.wrong(p, "choose another one", "%s is the address of the bridge in the pod", nic.MacAddress)
	}
	if other, twice := seen.macs[hw.String()]; twice {
		c.wrong(p, "choose another one", "%s is the address of interface %q already", nic.MacAddress, c.nics()[other].Name)
	}
	seen.macs[hw.String()] = i
}

// diskBoots are the places in the boot order that disks have.
func (c *checker) diskBoots() map[uint]string {
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
		c.wrong(p, "for example "+example, "%q is no subnet of its family", cidr)
	case n.Addr().BitLen()-n.Bits() < 2:
		c.wrong(p, "for example "+example, "%s has no room for the addresses of the gateway and of the guest", cidr)
	case n.Addr().IsMulticast() || n.Addr().IsLoopback() || n.Addr().IsUnspecified() || n.Addr().IsLinkLocalUnicast():
		c.wrong(p, "for example "+example, "%s has no addresses for guests", cidr)
	}
}
