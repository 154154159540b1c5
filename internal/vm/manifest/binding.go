// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/kubevirt"
)

// binding checks that an interface is bound in one way, that weft has it, and that its network suits it.
func (c *checker) binding(p *field.Path, nic kubevirt.Interface, network kubevirt.Network, known bool) {
	count := 0
	for _, is := range []bool{
		nic.Bridge != nil, nic.Masquerade != nil, nic.SRIOV != nil, nic.Binding != nil, nic.PasstBinding != nil,
		nic.DeprecatedSlirp != nil, nic.DeprecatedMacvtap != nil, nic.DeprecatedPasst != nil,
	} {
		if is {
			count++
		}
	}
	if count != 1 {
		c.wrong(p, "one of bridge, masquerade, sriov, macvtap and binding", "interface %q is bound in %d ways, not in one",
			nic.Name, count)
		return
	}
	const instead = "bind it by masquerade"
	switch {
	case nic.DeprecatedSlirp != nil:
		c.unsupported(p.Child("slirp"), instead, "the user-mode stack of QEMU is not supported; KubeVirt has none since 1.3")
	case nic.DeprecatedPasst != nil:
		c.unsupported(p.Child("passt"), instead, "connections carried by a process for each guest are not supported")
	case nic.PasstBinding != nil:
		c.unsupported(p.Child("passtBinding"), instead, "connections carried by a process for each guest are not supported")
	case nic.Binding != nil:
		c.plugin(p.Child("binding", "name"), nic.Binding.Name)
	case nic.Masquerade != nil && known && network.Pod == nil:
		c.wrong(p.Child("name"), "bind it by bridge", "network %q is not the pod's: masquerade has only that one", nic.Name)
	}
}

// plugin checks that a binding plugin is known.
func (c *checker) plugin(p *field.Path, name string) {
	switch how := c.options.attachment(name); {
	case name == "":
		c.wrong(p, "the name of a binding plugin", "it is empty")
	case slices.Contains([]model.VMBinding{model.VMTap, model.VMManagedTap, model.VMMacvtap, model.VMDirect},
		model.VMBinding(how)):
	case how != "":
		c.unsupported(p, "tap or managedTap", "binding plugin %q: domainAttachmentType %q is not supported", name, how)
	case name == "passt":
		c.unsupported(p, "bind it by masquerade", "connections carried by a process for each guest are not supported")
	default:
		c.wrong(p, "name the plugins with their domainAttachmentType, as KubeVirt's own object does",
			"no binding plugin %q is known", name)
	}
}
