// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Macvtap connects a VM in a container to the network of one of the node's interfaces. The interface, the mode and the
// index are those of the device that the kubelet has allocated: the container was granted /dev/tapN, and the link must
// have that index. The reference plugin moves a link that its device plugin has created; here nothing exists before the
// ADD, so nothing is left of an allocation without one.
type Macvtap struct {
	// OwnDevice plans attachments of weft's own devices: others are attached by macvtap-cni's program.
	OwnDevice bool
}

// MacvtapType is the plugin's type in the configurations of users, which macvtap-cni serves with its own devices.
const MacvtapType = "macvtap"

// OwnMacvtapType is Macvtap's type: of MacvtapType with a device of weft's.
const OwnMacvtapType = "weft-macvtap"

// hypervisor is the user and the group of qemu in KubeVirt's images.
const hypervisor = 107

type macvtapConf struct {
	macSources
	DeviceID    string  `json:"deviceID"`
	MTU         int     `json:"mtu"`
	PromiscMode bool    `json:"promiscMode"`
	Owner       *uint32 `json:"owner"`
	Group       *uint32 `json:"group"`

	ipam   bool // the ipam section names a type
	device MacvtapDevice
}

// Type returns "macvtap", or "weft-macvtap" for weft's own devices.
func (m Macvtap) Type() string {
	if m.OwnDevice {
		return OwnMacvtapType
	}
	return MacvtapType
}

// Capabilities returns the optional interfaces that the plugin implements.
func (Macvtap) Capabilities() Capabilities { return Capabilities{MakesInterface: true} }

// Keys returns the configuration keys, those of macvtap-cni.
func (Macvtap) Keys() []string {
	return interfaceKeys("deviceID", "mtu", "mac", "promiscMode", "owner", "group")
}

// IPAM returns the ipam section. Without one the guest gets its address from the network.
func (Macvtap) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode parses and validates the configuration. A NetworkAttachmentDefinition has no device.
func (Macvtap) Decode(conf model.PluginConf) (any, error) { return readMacvtap(conf) }

func readMacvtap(conf model.PluginConf) (macvtapConf, error) {
	conf.Type = MacvtapType // messages name what the user has written
	var c macvtapConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	section, err := ipamSection(conf)
	if err != nil {
		return c, err
	}
	c.ipam = section != nil
	const unset = 1<<32 - 1
	for _, id := range []struct {
		field string
		value *uint32
	}{{"owner", c.Owner}, {"group", c.Group}} {
		if id.value != nil && *id.value == unset {
			return c, model.Errorf(model.CodeInvalidConf, "remove it for KubeVirt's user, 107", "plugin macvtap: %s %d is not a valid ID",
				id.field, *id.value)
		}
	}
	if _, err := c.mac(conf, model.Request{}); err != nil {
		return c, err
	}
	return c, checkMTU(conf, c.MTU)
}

// readAllocated reads the configuration of an attachment, which must have a device of weft's.
func readAllocated(in Input) (macvtapConf, error) {
	c, err := decoded(in, readMacvtap)
	if err != nil {
		return c, err
	}
	var ok bool
	if c.device, ok = ParseMacvtapDevice(c.DeviceID); !ok {
		return c, model.Errorf(model.CodeInvalidConf,
			"the kubelet allocates one to a pod that requests the network's resource; macvtap-cni's own are attached by its program",
			"plugin macvtap: deviceID %q is not a device of weft's", c.DeviceID)
	}
	return c, nil
}

func (c macvtapConf) lower() state.Query {
	return state.Query{Space: state.Host, Device: state.Device{Name: c.device.Lower}}
}

// Observe returns the queries for the lower interface and the interface's name, which must be free.
func (Macvtap) Observe(in Input) ([]state.Query, error) {
	c, err := readAllocated(in)
	if err != nil {
		return nil, err
	}
	return []state.Query{freeName(in.Request), c.lower()}, checkArgs(in.Request)
}

// Plan creates the macvtap in the container.
func (Macvtap) Plan(in Input) (Step, error) {
	c, err := readAllocated(in)
	if err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	lower := in.Answers[c.lower()]
	switch {
	case !lower.Found:
		return Step{}, model.Errorf(model.CodeTryAgain, "ip link lists the interfaces",
			"plugin macvtap: lowerDevice %q of device %s does not exist on the node", c.device.Lower, c.DeviceID)
	case lower.Link.MTU != 0 && c.MTU > lower.Link.MTU:
		return Step{}, model.Errorf(model.CodeInvalidConf, "leave mtu out to use that of lowerDevice",
			"plugin macvtap: mtu %d is above the %d of lowerDevice %q", c.MTU, lower.Link.MTU, c.device.Lower)
	}
	mac, err := c.mac(in.Conf, in.Request)
	if err != nil {
		return Step{}, err
	}
	if mac.IsZero() {
		mac = podMAC(in.Request)
	}
	a, dns, err := in.optionalAddresses(c.ipam)
	if err != nil {
		return Step{}, err
	}
	// The guest announces its addresses itself. Frames of the pod's kernel have the guest's MAC: on the target of a live
	// migration they would lead the switches there while the guest still runs on the source.
	i := standaloneLink{link: state.Link{
		Kind: state.Macvtap, Index: c.device.Index, MAC: mac, MTU: c.MTU,
		Parent:  &state.Parent{Space: state.Host, Name: lower.Link.Name},
		Macvlan: &state.MacvlanAttrs{Mode: c.device.Mode},
	}}
	if c.PromiscMode {
		i.link.Promisc = state.On()
	}
	step, err := i.step(in, a, dns)
	if err != nil {
		return step, err
	}
	own := state.Effect{Kind: state.OwnDevice, Space: state.Pod, Link: in.Request.IfName, Owner: hypervisor, Group: hypervisor}
	if c.Owner != nil {
		own.Owner = *c.Owner
	}
	if c.Group != nil {
		own.Group = *c.Group
	}
	step.Fragment.Effects = append(step.Fragment.Effects, own)
	if !a.v6 {
		step.Fragment.Pod.Sysctls = append(step.Fragment.Pod.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/" + in.Request.IfName + "/disable_ipv6", Value: "1", IfPresent: true,
		})
	}
	return step, nil
}
