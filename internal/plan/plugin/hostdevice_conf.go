// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

type hostDeviceConf struct {
	dadConf
	Device        string `json:"device"`
	HWAddr        string `json:"hwaddr"`
	KernelPath    string `json:"kernelpath"`
	PCIBusID      string `json:"pciBusID"`
	RuntimeConfig struct {
		DeviceID string `json:"deviceID"`
	} `json:"runtimeConfig"`

	mac  state.MAC
	ipam bool // the ipam section names a type
}

const nameOneDevice = `name one device: "device", "hwaddr", "kernelpath" or "pciBusID", or have the runtime allocate a deviceID`

// selectors returns the keys that may name the device, in the order in which the reference plugin uses them: the first
// that is set decides. A device that the runtime has allocated replaces pciBusID.
func (c *hostDeviceConf) selectors() []deviceSelector {
	pci := deviceSelector{"pciBusID", &c.PCIBusID}
	if c.RuntimeConfig.DeviceID != "" {
		c.PCIBusID = ""
		pci = deviceSelector{"runtimeConfig.deviceID", &c.RuntimeConfig.DeviceID}
	}
	return []deviceSelector{{"device", &c.Device}, {"hwaddr", &c.HWAddr}, {"kernelpath", &c.KernelPath}, pci}
}

// deviceSelector is a key of the configuration and where its value is.
type deviceSelector struct {
	key   string
	value *string
}

// readHostDevice reads and checks a configuration.
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
	found := false
	for _, s := range c.selectors() {
		if found {
			*s.value = ""
		}
		found = found || *s.value != ""
	}
	if !found {
		return c, model.Errorf(model.CodeInvalidConf, nameOneDevice, "plugin host-device: no device is named")
	}
	if err := c.dadConf.check(conf, c.ipam); err != nil {
		return c, err
	}
	return c, c.check()
}

// Warnings returns the keys that have no effect because another one names the device.
func (HostDevice) Warnings(conf json.RawMessage) []model.Warning {
	var c hostDeviceConf
	if decode(model.PluginConf{Type: "host-device", Raw: conf}, &c) != nil {
		return nil // Decode says it
	}
	var out []model.Warning
	by := ""
	for _, s := range c.selectors() {
		switch {
		case *s.value == "":
		case by == "":
			by = s.key
		default:
			out = append(out, model.Warning{
				Field: s.key, Msg: fmt.Sprintf("%s has no effect together with %s, which names the device", s.key, by), Hint: nameOneDevice,
			})
		}
	}
	return out
}

// check rejects values that cannot identify a device.
func (c *hostDeviceConf) check() error {
	switch {
	case c.Device != "":
		if c.Device == lo {
			return model.Errorf(model.CodeInvalidConf, "every namespace has its own",
				`plugin host-device: device "lo" cannot be moved`)
		}
		return checkDeviceName(c.Device)
	case c.HWAddr != "":
		mac, err := state.ParseMAC(c.HWAddr)
		if err != nil {
			return model.Errorf(model.CodeInvalidConf, "six bytes, for example 02:00:00:00:00:01",
				"plugin host-device: hwaddr: %w", err)
		}
		if mac.IsZero() {
			return model.Errorf(model.CodeInvalidConf, "", "plugin host-device: hwaddr %s is not a valid MAC address", c.HWAddr)
		}
		c.mac = mac
	case c.KernelPath != "":
		if path.Clean(c.KernelPath) != c.KernelPath || !strings.HasPrefix(c.KernelPath, "/sys/devices/") {
			return model.Errorf(model.CodeInvalidConf, "for example /sys/devices/pci0000:00/0000:00:1f.6",
				"plugin host-device: kernelpath %q is not a path below /sys/devices", c.KernelPath)
		}
	case c.PCIBusID != "":
		return checkBusID("pciBusID", c.PCIBusID)
	default:
		return checkBusID("runtimeConfig.deviceID", c.RuntimeConfig.DeviceID)
	}
	return nil
}

// checkDeviceName rejects what is neither a valid interface name nor a valid alternative name, which may be longer.
func checkDeviceName(name string) error {
	const most = 127 // ALTIFNAMSIZ, less the final zero
	if len(name) <= most && name != "." && name != ".." && !strings.ContainsAny(name, "/ \t\n\x00") {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, "ip link shows the node's devices",
		"plugin host-device: device %q is not a valid device name", name)
}

// checkBusID rejects values that would leave the bus's directory in sysfs.
func checkBusID(field, id string) error {
	if id != "." && id != ".." && !strings.ContainsAny(id, "/\x00") {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, "for example 0000:00:1f.6",
		"plugin host-device: %s %q is not a bus address", field, id)
}

func (c hostDeviceConf) query() state.Query {
	return state.Query{Space: state.Host, Device: state.Device{
		Name: c.Device, MAC: c.mac, Path: c.KernelPath, PCI: c.PCIBusID, ID: c.RuntimeConfig.DeviceID,
	}}
}

// name returns the description of the device, as configured.
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

// device returns the observed device.
func (c hostDeviceConf) device(answers state.Answers) (state.Answer, error) {
	have := answers[c.query()]
	switch {
	case !have.Found:
		return have, model.Errorf(model.CodeInvalidConf, "it may already be in a container",
			"plugin host-device: %s is not on this node", c.name())
	case have.Link.Name == "" && !userspace(have.Driver):
		return have, model.Errorf(model.CodeInvalidConf, "it may already be in a container, or has no driver",
			"plugin host-device: %s has no network device on this node", c.name())
	}
	return have, nil
}
