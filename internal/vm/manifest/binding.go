// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/kubevirt"
)

// binding checks that an interface has one binding that weft supports, and that it fits the network.
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
		c.invalid(p, "one of bridge, masquerade, sriov, macvtap and binding", "interface %q has %d bindings, not one",
			nic.Name, count)
		return
	}
	const instead = "use the masquerade binding"
	switch {
	case nic.DeprecatedSlirp != nil:
		c.unsupported(p.Child("slirp"), instead, "slirp is not supported; KubeVirt removed it in 1.3")
	case nic.DeprecatedPasst != nil:
		c.unsupported(p.Child("passt"), instead, "passt is not supported")
	case nic.PasstBinding != nil:
		c.unsupported(p.Child("passtBinding"), instead, "passt is not supported")
	case nic.Binding != nil:
		c.plugin(p.Child("binding", "name"), nic.Binding.Name)
	case nic.Masquerade != nil && known && network.Pod == nil:
		c.invalid(p.Child("name"), "use the bridge binding", "network %q is not the pod network: masquerade supports no other", nic.Name)
	}
}

// plugin checks that a binding plugin is known.
func (c *checker) plugin(p *field.Path, name string) {
	switch how := c.options.attachmentType(name); {
	case name == "":
		c.invalid(p, "the name of a binding plugin", "it is empty")
	case slices.Contains([]model.VMBinding{model.VMTap, model.VMManagedTap, model.VMMacvtap, model.VMDirect},
		model.VMBinding(how)):
	case how != "":
		c.unsupported(p, "tap or managedTap", "binding plugin %q: domainAttachmentType %q is not supported", name, how)
	case name == "passt":
		c.unsupported(p, "use the masquerade binding", "passt is not supported")
	default:
		c.invalid(p, "name the plugins with their domainAttachmentType, as KubeVirt's own object does",
			"binding plugin %q is not known", name)
	}
}
