// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"path"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

type hostDeviceConf struct {
	Device        string `json:"device"`
	HWAddr        string `json:"hwaddr"`
	KernelPath    string `json:"kernelpath"`
	PCIBusID      string `json:"pciBusID"`
	RuntimeConfig struct {
		DeviceID string `json:"deviceID"`
	} `json:"runtimeConfig"`

	mac  state.MAC
	ipam bool // whether the ipam section names a type
}

const nameOneDevice = `name one device: "device", "hwaddr", "kernelpath" or "pciBusID", or have the runtime give a deviceID`

// readHostDevice reads and checks a configuration. The device that the runtime has allocated goes before pciBusID.
func readHostDevice(conf model.PluginConf) (hostDeviceConf, error) {
	var c hostDeviceConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	section, err := ipamSection(conf)
	if err != nil {
		return c, err
	}
	c.ipam = section != nil
	if c.RuntimeConfig.DeviceID != "" {
		c.PCIBusID = ""
	}
	var given []string
	for _, o := range [][2]string{
		{"device", c.Device},
		{"hwaddr", c.HWAddr},
		{"kernelpath", c.KernelPath},
		{"pciBusID", c.PCIBusID},
		{"runtimeConfig.deviceID", c.RuntimeConfig.DeviceID},
	} {
		if o[1] != "" {
			given = append(given, o[0]+` "`+o[1]+`"`)
		}
	}
	switch len(given) {
	case 0:
		return c, model.Faultf(model.CodeInvalidConf, nameOneDevice, "plugin host-device: no device is named")
	case 1:
		return c, c.check()
	}
	return c, model.Faultf(model.CodeInvalidConf, nameOneDevice, "plugin host-device: %s exclude each other",
		strings.Join(given, " and "))
}

// check refuses words that cannot be the device's.
func (c *hostDeviceConf) check() error {
	switch {
	case c.Device != "":
		if c.Device == lo {
			return model.Faultf(model.CodeInvalidConf, "every namespace has its own",
				`plugin host-device: device "lo" cannot be moved`)
		}
		return checkDeviceName(c.Device)
	case c.HWAddr != "":
		mac, err := state.ParseMAC(c.HWAddr)
		if err != nil {
			return model.Faultf(model.CodeInvalidConf, "six bytes, for example 02:00:00:00:00:01",
				"plugin host-device: hwaddr: %w", err)
		}
		if mac.IsZero() {
			return model.Faultf(model.CodeInvalidConf, "", "plugin host-device: hwaddr %s is no device's", c.HWAddr)
		}
		c.mac = mac
	case c.KernelPath != "":
		if path.Clean(c.KernelPath) != c.KernelPath || !strings.HasPrefix(c.KernelPath, "/sys/devices/") {
			return model.Faultf(model.CodeInvalidConf, "for example /sys/devices/pci0000:00/0000:00:1f.6",
				"plugin host-device: kernelpath %q is no path below /sys/devices", c.KernelPath)
		}
	case c.PCIBusID != "":
		return checkBusID("pciBusID", c.PCIBusID)
	default:
		return checkBusID("runtimeConfig.deviceID", c.RuntimeConfig.DeviceID)
	}
	return nil
}

// checkDeviceName refuses what is no link's name and no alternative one, which may be longer.
func checkDeviceName(name string) error {
	const most = 127 // ALTIFNAMSIZ, less the final zero
	if len(name) <= most && name != "." && name != ".." && !strings.ContainsAny(name, "/ \t\n\x00") {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, "ip link shows the node's devices",
		"plugin host-device: device %q is no device's name", name)
}

// checkBusID refuses what would leave the bus's directory.
func checkBusID(field, id string) error {
	if id != "." && id != ".." && !strings.ContainsAny(id, "/\x00") {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, "for example 0000:00:1f.6",
		"plugin host-device: %s %q is no address on a bus", field, id)
}

func (c hostDeviceConf) query() state.Query {
	return state.Query{Space: state.Host, Device: state.Device{
		Name: c.Device, MAC: c.mac, Path: c.KernelPath, PCI: c.PCIBusID, ID: c.RuntimeConfig.DeviceID,
	}}
}

// name is the device in the configuration's words.
func (c hostDeviceConf) name() string {
	switch {
	case c.Device != "":
		return `device "` + c.Device + `"`
	case c.HWAddr != "":
		return "device with hwaddr " + c.mac.String()
	case c.KernelPath != "":
		return `device with kernelpath "` + c.KernelPath + `"`
	case c.PCIBusID != "":
		return `device with pciBusID "` + c.PCIBusID + `"`
	}
	return `device with runtimeConfig.deviceID "` + c.RuntimeConfig.DeviceID + `"`
}

// device is what was found out about the device.
func (c hostDeviceConf) device(answers state.Answers) (state.Answer, error) {
	have := answers[c.query()]
	switch {
	case !have.Found:
		return have, model.Faultf(model.CodeInvalidConf, "it is perhaps in a container already",
			"plugin host-device: %s is not on this node", c.name())
	case have.Link.Name == "" && !userspace(have.Driver):
		return have, model.Faultf(model.CodeInvalidConf, "it is perhaps in a container already, or has no driver",
			"plugin host-device: %s has no network device on this node", c.name())
	}
	return have, nil
}
