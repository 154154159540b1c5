// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

type bridgeConf struct {
	Name                      string  `json:"bridge"`
	IsGateway                 bool    `json:"isGateway"`
	IsDefaultGateway          bool    `json:"isDefaultGateway"`
	ForceAddress              bool    `json:"forceAddress"`
	IPMasq                    bool    `json:"ipMasq"`
	IPMasqBackend             *string `json:"ipMasqBackend"`
	MTU                       int     `json:"mtu"`
	HairpinMode               bool    `json:"hairpinMode"`
	PromiscMode               bool    `json:"promiscMode"`
	Vlan                      int     `json:"vlan"`
	VlanTrunk                 []trunk `json:"vlanTrunk"`
	PreserveDefaultVlan       bool    `json:"preserveDefaultVlan"`
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

	ipam bool // whether the ipam section names a type
}

// readBridge reads and checks a configuration.
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
		return c, model.Faultf(model.CodeInvalidConf, "choose one: both make a port send a frame back",
			"plugin bridge: hairpinMode true and promiscMode true exclude each other")
	}
	if err := checkMTU(conf, c.MTU); err != nil {
		return c, err
	}
	if err := c.masq().check(conf); err != nil {
		return c, err
	}
	if c.DisableContainerInterface && c.ipam {
		return c, model.Faultf(model.CodeInvalidConf, "leave one of them out: an interface that stays down has no addresses",
			"plugin bridge: disableContainerInterface true and ipam exclude each other")
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
	return c, c.checkVlans(conf)
}

func (c bridgeConf) masq() masqConf { return masqConf{c.IPMasq, c.IPMasqBackend} }

// mac is the hardware address that the caller wants for the container's end, zero when none: CNI_ARGS, then args.cni,
// then runtimeConfig, the last one wins.
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
		return mac, model.Faultf(model.CodeInvalidConf, "six bytes, for example 02:00:00:00:00:01",
			"plugin %s: %s: %w", conf.Type, field, err)
	}
	if mac.IsZero() || mac[0]&1 != 0 {
		return mac, model.Faultf(model.CodeInvalidConf, "the lowest bit of the first byte is 0 in an interface's address",
			"plugin %s: %s: %s is not a unicast address", conf.Type, field, value)
	}
	return mac, nil
}

// mostLinkName is the length of the longest name of a link.
const mostLinkName = 15

// checkLinkName refuses what the kernel refuses as a link's name.
func checkLinkName(conf model.PluginConf, key, name string) error {
	bad := ""
	switch {
	case name == "" || name == "." || name == "..":
		bad = "cannot be a link's name"
	case len(name) > mostLinkName:
		bad = "is too long for a link's name"
	}
	for _, r := range name {
		if r <= ' ' || r == '/' || r == ':' {
			bad = "contains a character that a link's name cannot have"
		}
	}
	if bad == "" {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, "at most 15 characters, no '/', ':' or white space",
		"plugin %s: %s %q %s", conf.Type, key, name, bad)
}
