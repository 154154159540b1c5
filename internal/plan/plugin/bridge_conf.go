// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

type bridgeConf struct {
	dadConf
	Name                      string  `json:"bridge"`
	IsGateway                 bool    `json:"isGateway"`
	IsDefaultGateway          bool    `json:"isDefaultGateway"`
	ForceAddress              bool    `json:"forceAddress"`
	IPMasq                    bool    `json:"ipMasq"`
	IPMasqBackend             *string `json:"ipMasqBackend"`
	MTU                       int     `json:"mtu"`
	HairpinMode               bool    `json:"hairpinMode"`
	PromiscMode               bool    `json:"promiscMode"`
	VLAN                      int     `json:"vlan"`
	VLANTrunk                 []trunk `json:"vlanTrunk"`
	PreserveDefaultVLAN       bool    `json:"preserveDefaultVlan"`
	MACSpoofChk               bool    `json:"macspoofchk"`
	EnableDAD                 bool    `json:"enabledad"`
	DisableContainerInterface bool    `json:"disableContainerInterface"`
	PortIsolation             bool    `json:"portIsolation"`
	Guard                     *bool   `json:"guard"`

	Args struct {
		CNI struct {
			MAC string `json:"mac"`
		} `json:"cni"`
	} `json:"args"`
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`

	ipam bool // the ipam section names a type
}

// readBridge parses and validates a configuration.
func readBridge(conf model.PluginConf) (bridgeConf, error) {
	c := bridgeConf{Name: "cni0"}
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	section, err := ipamSection(conf)
	if err != nil {
		return c, err
	}
	c.ipam = section != nil
	c.IsGateway = c.IsGateway || c.IsDefaultGateway
	if err := checkLinkName(conf, "bridge", c.Name); err != nil {
		return c, err
	}
	if c.HairpinMode && c.PromiscMode {
		return c, model.Errorf(model.CodeInvalidConf, "choose one: both make a port send a frame back",
			"plugin bridge: hairpinMode true and promiscMode true exclude each other")
	}
	if err := checkMTU(conf, c.MTU); err != nil {
		return c, err
	}
	if err := c.masq().check(conf); err != nil {
		return c, err
	}
	if c.DisableContainerInterface && c.ipam {
		return c, model.Errorf(model.CodeInvalidConf, "leave one of them out: an interface that stays down has no addresses",
			"plugin bridge: disableContainerInterface true and ipam exclude each other")
	}
	if err := c.dadConf.check(conf, c.ipam); err != nil {
		return c, err
	}
	if err := c.checkGuard(); err != nil {
		return c, err
	}
	if _, err := c.mac(conf, model.Request{}); err != nil {
		return c, err
	}
	if err := readDNS(conf).err; err != nil {
		return c, err
	}
	return c, c.checkVLANs(conf)
}

func (c bridgeConf) masq() masqConf { return masqConf{c.IPMasq, c.IPMasqBackend} }

// mac returns the MAC address that is configured for the container's end, zero if none is. runtimeConfig takes
// precedence over args.cni, which takes precedence over CNI_ARGS.
func (c bridgeConf) mac(conf model.PluginConf, r model.Request) (state.MAC, error) {
	field, value := "CNI_ARGS MAC", ""
	if v, ok := r.Arg("MAC"); ok {
		value = v
	}
	if c.Args.CNI.MAC != "" {
		field, value = "args.cni.mac", c.Args.CNI.MAC
	}
	if c.RuntimeConfig.MAC != "" {
		field, value = "runtimeConfig.mac", c.RuntimeConfig.MAC
	}
	if value == "" {
		return state.MAC{}, nil
	}
	mac, err := state.ParseMAC(value)
	if err != nil {
		return mac, model.Errorf(model.CodeInvalidConf, "six bytes, for example 02:00:00:00:00:01",
			"plugin %s: %s: %w", conf.Type, field, err)
	}
	if mac.IsZero() || mac[0]&1 != 0 {
		return mac, model.Errorf(model.CodeInvalidConf, "the lowest bit of the first byte must be 0",
			"plugin %s: %s: %s is not a unicast address", conf.Type, field, value)
	}
	return mac, nil
}

// maxLinkName is the maximum length of an interface name (IFNAMSIZ less the final zero).
const maxLinkName = 15

// checkLinkName rejects names that the kernel rejects for an interface.
func checkLinkName(conf model.PluginConf, key, name string) error {
	bad := ""
	switch {
	case name == "" || name == "." || name == "..":
		bad = "is not a valid interface name"
	case len(name) > maxLinkName:
		bad = "is too long for an interface name"
	}
	for _, r := range name {
		if r <= ' ' || r == '/' || r == ':' {
			bad = "contains a character that is not valid in an interface name"
		}
	}
	if bad == "" {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, "at most 15 characters, no '/', ':' or white space",
		"plugin %s: %s %q %s", conf.Type, key, name, bad)
}
